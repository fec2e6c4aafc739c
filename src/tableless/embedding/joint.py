"""JointEmbedding: several features, one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from .budget import Budget, fit_to_budget, resolve_budget
from .decoders import EmbeddingNetwork
from .encoders import DenseHashEncoder
from .hashing import derive_seed
from .id_batches import checked_ids, distinct_ids
from .scheme import INITIAL_STD


class JointEmbedding(nn.Module):
    """One deep hash embedding network for several features. Each feature has hash functions of its own.

    The hash functions of a feature depend on its name alone. So features may be listed in any order, and a feature that
    is added later does not change the codes of the others.

    Args:
        features: The names of the features, with the vocabulary size of each, or None if it is not known. Only
            `from_budget` uses the sizes.
        embedding_dim: Dimensions of a vector.
        width: Units of a hidden layer.
        depth: How many hidden layers there are.
        num_hashes: How many hash functions make the code of an id.
        initial_std: The standard deviation of the vectors before training.
        seed: Hash functions and weights follow from it.

    Raises:
        ValueError: There are no features.

    Example:
        ```python
        import torch
        from tableless import JointEmbedding

        joint = JointEmbedding.from_budget("1/16", features={"user": 100_000, "device": 5_000}, embedding_dim=32)
        vectors = joint({"user": torch.tensor([1, 2]), "device": torch.tensor([9, 9])})
        print(vectors["user"].shape, vectors["device"].shape)  # [2, 32] each
        ```
    """

    def __init__(
        self,
        features: Mapping[str, int | None],
        embedding_dim: int = 32,
        *,
        width: int,
        depth: int = 5,
        num_hashes: int = 1024,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not features:
            raise ValueError("a joint embedding needs at least one feature")
        self.features = dict(features)
        self.embedding_dim = embedding_dim
        self.width = width
        self.depth = depth
        self.num_hashes = num_hashes
        self.initial_std = initial_std
        self.seed = seed
        # A list, since features may have names that torch forbids for children of a module, such as "type" or "a.b".
        self.encoders = nn.ModuleList(
            DenseHashEncoder(num_hashes, seed=derive_seed(seed, f"feature {name}")) for name in sorted(self.features)
        )
        self.decoder = EmbeddingNetwork(
            num_hashes,
            embedding_dim,
            width=width,
            depth=depth,
            initial_std=initial_std,
            seed=seed,
        )

    def forward(self, ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{feature: int64 or int32 [...]} -> {feature: [..., embedding_dim]}, for all features or some of them.

        Repeated ids of a feature are computed once.
        """
        unknown = sorted(ids.keys() - self.features.keys())
        if unknown:
            raise KeyError(f"no feature {unknown[0]!r} here; there are {', '.join(sorted(self.features))}")
        encoder = dict(zip(sorted(self.features), self.encoders, strict=True))
        if not ids:
            return {}
        distinct = {name: distinct_ids(checked_ids(own)) for name, own in ids.items()}
        codes = [encoder[name](own.reshape(-1)) for name, (own, _) in distinct.items()]  # [n, num_hashes] each
        embeddings = self.decoder(torch.cat(codes)).split([len(code) for code in codes])
        return {
            name: rows.view(*own.shape, self.embedding_dim) if numbers is None else F.embedding(numbers, rows)
            for (name, (own, numbers)), rows in zip(distinct.items(), embeddings, strict=True)
        }

    @property
    def num_parameters(self) -> int:
        """Trainable parameters, of all features together."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def num_bytes(self) -> int:
        """Bytes of everything that is stored."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state_dict().values())

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build the same joint embedding again."""
        names = ("features", "embedding_dim", "width", "depth", "num_hashes", "initial_std", "seed")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_budget(
        cls, budget: Budget, *, features: Mapping[str, int | None], embedding_dim: int, seed: int = 0, **options: Any
    ) -> Self:
        """The widest network within one budget for all features. A share such as "1/16" is one of all their tables.

        Each feature has hash functions of its own, and these count in bytes (32 for each of `num_hashes`).
        """
        allowed = resolve_budget(
            budget, embedding_dim=embedding_dim, vocab_size=sum(size or 0 for size in features.values())
        )
        return fit_to_budget(lambda width: cls(features, embedding_dim, width=width, seed=seed, **options), allowed)

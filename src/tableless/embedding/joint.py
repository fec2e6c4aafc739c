"""JointEmbedding: several features, one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from .budget import Budget, fit_to_budget, resolve_budget
from .decoders import EmbeddingNetwork, Normalization
from .deep_hash import DeepHashEmbedding
from .encoders import DenseHashEncoder
from .hashing import derive_seed, mix_ids
from .id_batches import checked_ids, distinct_ids
from .scheme import INITIAL_STD


class JointEmbedding(nn.Module):
    """One deep hash embedding network for several features. The same id has another vector in another feature.

    What an id becomes depends on the name of its feature alone. So features may be listed in any order, and a feature
    that is added later does not change the others.

    Args:
        features: The names of the features, with the vocabulary size of each, or None if it is not known. Only
            `from_budget` uses the sizes.
        embedding_dim: Dimensions of a vector.
        width: Units of a hidden layer.
        depth: How many hidden layers there are.
        num_hashes: How many hash functions make the code of an id.
        own_hashes: Does each feature have hash functions of its own? If not, all share them (`network` is their one
            scheme), and each feature changes its ids first, in a way of its own. That takes fewer bytes.
        normalization: `"batch"` or `"none"`, as for `DeepHashEmbedding`.
        num_experts: With shared hash functions, how many networks share the ids.
        weight_bits: With shared hash functions, how weights are stored: 32 is float32, 8 and fewer are integers.
        packed: With shared hash functions: is it built in the form that is stored?
        initial_std: The standard deviation of the vectors before training.
        seed: Hash functions and weights follow from it.

    Raises:
        ValueError: There are no features, or own hash functions are combined with what needs shared ones.

    Example:
        ```python
        import torch
        from tableless import JointEmbedding

        joint = JointEmbedding.from_budget("1/16", features={"user": 100_000, "device": 5_000}, embedding_dim=32)
        vectors = joint({"user": torch.tensor([1, 2]), "device": torch.tensor([9, 9])})
        print(vectors["user"].shape, vectors["device"].shape)  # [2, 32] each
        ```
    """

    network: DeepHashEmbedding | None

    def __init__(
        self,
        features: Mapping[str, int | None],
        embedding_dim: int = 32,
        *,
        width: int,
        depth: int = 5,
        num_hashes: int = 1024,
        own_hashes: bool = True,
        normalization: Normalization = "batch",
        num_experts: int = 1,
        weight_bits: int = 32,
        packed: bool = False,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not features:
            raise ValueError("a joint embedding needs at least one feature")
        if own_hashes and (num_experts, weight_bits, packed) != (1, 32, False):
            raise ValueError("experts and weights of few bits need shared hash functions; give own_hashes=False")
        self.features = dict(features)
        self.embedding_dim = embedding_dim
        self.width, self.depth, self.num_hashes = width, depth, num_hashes
        self.own_hashes, self.normalization = own_hashes, normalization
        self.num_experts, self.weight_bits, self.packed = num_experts, weight_bits, packed
        self.initial_std, self.seed = initial_std, seed
        shape: dict[str, Any] = {"width": width, "depth": depth, "normalization": normalization}
        start: dict[str, Any] = {"initial_std": initial_std, "seed": seed}
        self.network = None
        if own_hashes:
            # A list: features may have names that torch forbids for children of a module, such as "type" or "a.b".
            self.encoders = nn.ModuleList(
                DenseHashEncoder(num_hashes, seed=derive_seed(seed, f"feature {name}"))
                for name in sorted(self.features)
            )
            self.decoder = EmbeddingNetwork(num_hashes, embedding_dim, **shape, **start)
        else:
            stored: dict[str, Any] = {"num_experts": num_experts, "weight_bits": weight_bits, "packed": packed}
            self.network = DeepHashEmbedding(embedding_dim, num_hashes=num_hashes, **shape, **stored, **start)

    def forward(self, ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{feature: int64 or int32 [...]} -> {feature: [..., embedding_dim]}, for all features or some of them.

        Repeated ids of a feature are computed once.
        """
        for name in ids:
            self._require_feature(name)
        if not ids:
            return {}
        distinct = {name: distinct_ids(checked_ids(own)) for name, own in ids.items()}
        # All features in one pass, as batch norm sees them in training.
        if self.network is not None:
            flat = [self.network_ids(name, own.reshape(-1)) for name, (own, _) in distinct.items()]
            together = self.network(torch.cat(flat))
        else:
            encoder = dict(zip(sorted(self.features), self.encoders, strict=True))
            flat = [encoder[name](own.reshape(-1)) for name, (own, _) in distinct.items()]  # [n, num_hashes] each
            together = self.decoder(torch.cat(flat))
        embeddings = together.split([part.shape[0] for part in flat])
        return {
            name: rows.view(*own.shape, self.embedding_dim) if numbers is None else F.embedding(numbers, rows)
            for (name, (own, numbers)), rows in zip(distinct.items(), embeddings, strict=True)
        }

    def network_ids(self, feature: str, ids: Tensor) -> Tensor:
        """With shared hash functions: the ids of a feature as those that `network` takes, int64 [...] -> int64 [...].

        `tableless.distil` fits the network to the tables of all features at once, by their ids here, one after the
        other.
        """
        self._require_feature(feature)
        salt = derive_seed(0, f"feature {feature}")
        return mix_ids(checked_ids(ids) ^ (salt - 2**64 if salt >= 2**63 else salt))

    def _require_feature(self, name: str) -> None:
        if name not in self.features:
            raise KeyError(f"no feature {name!r} here; there are {', '.join(sorted(self.features))}")

    def pack(self) -> None:
        """Round the weights to the form that is stored, for good."""
        if self.network is not None:
            self.network.pack()
            self.packed = self.network.packed

    def unpack(self) -> None:
        """Make the weights trainable again."""
        if self.network is not None:
            self.network.unpack()
            self.packed = self.network.packed

    @property
    def num_parameters(self) -> int:
        """Trainable parameters, of all features together."""
        if self.network is not None:
            return self.network.num_parameters
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def num_bytes(self) -> int:
        """Bytes of everything that is stored."""
        if self.network is not None:
            return self.network.num_bytes
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state_dict().values())

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build the same joint embedding again."""
        names = ("features", "embedding_dim", "width", "depth", "num_hashes", "own_hashes", "normalization")
        return {
            name: getattr(self, name)
            for name in (*names, "num_experts", "weight_bits", "packed", "initial_std", "seed")
        }

    @classmethod
    def from_budget(
        cls, budget: Budget, *, features: Mapping[str, int | None], embedding_dim: int, seed: int = 0, **options: Any
    ) -> Self:
        """The widest network within one budget for all features. A share such as "1/16" is one of all their tables.

        The features share their hash functions, and the network has the shape that `DeepHashEmbedding.from_budget`
        gives it. `options` are constructor arguments that replace those of that shape. With `own_hashes=True` each
        feature has hash functions of its own, and these count in bytes (32 for each of `num_hashes`).
        """
        vocab_size = sum(size or 0 for size in features.values())
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        if options.get("own_hashes", False):
            return fit_to_budget(lambda width: cls(features, embedding_dim, width=width, seed=seed, **options), allowed)
        options = {name: value for name, value in options.items() if name != "own_hashes"}
        sizes: dict[str, Any] = {"embedding_dim": embedding_dim, "vocab_size": vocab_size}
        network = DeepHashEmbedding.from_budget(allowed, **sizes, seed=seed, **options)
        shape = ("width", "depth", "num_hashes", "normalization", "num_experts", "weight_bits", "initial_std")
        chosen = {name: getattr(network, name) for name in shape}
        return cls(features, embedding_dim, own_hashes=False, seed=seed, **chosen)

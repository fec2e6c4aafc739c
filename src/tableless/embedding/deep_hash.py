"""DeepHashEmbedding: an id is hashed into a dense code, and a network computes its embedding from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Self

from .budget import Allowance, Budget, fit_to_budget, resolve_budget
from .decoders import Architecture, EmbeddingNetwork, Normalization
from .encoders import DenseHashEncoder, Encoder, SideFeatureEncoder, encoder_to_compare
from .hashing import HashFamily, derive_seed
from .id_batches import checked_ids, with_distinct_ids
from .inference.folding import ExpertsApart
from .inference.int8 import Int8Network
from .inference.network import FloatNetwork
from .layers import Activation
from .rounded_matrix import RoundedLinear, pack_all, unpack_all
from .rounding import require_bits
from .scheme import INITIAL_STD, EmbeddingScheme, Precision, Served
from .side_features import SideFeatures
from .weight_changes import BeginningWatch

Encoding = Literal["dense-hash", "identity", "binary", "random-fourier"]

PAPER_NETWORK: dict[str, Any] = {
    "num_hashes": 1024,
    "depth": 5,
    "normalization": "batch",
    "num_experts": 1,
    "weight_bits": 32,
}
"""The network of the paper, as arguments for `from_budget`."""

# Found on validation data of MovieLens-1M by fitting to a trained table: 64 hashes tell ids apart as well as 1024, and
# leave more parameters for the layers that memorise. Without batch norm the fit is closer in less time.
_BEST_NETWORK: dict[str, Any] = {"num_hashes": 64, "depth": 4, "normalization": "none"}
# Experts of this size (some 170 wide) memorise as well as one large network, at a fraction of its arithmetic.
_PARAMETERS_PER_EXPERT = 110_000
# Of a budget in bytes. 6 bits held a little more, but are slower to serve and larger to export (docs/tried.md).
_BEST_BITS = 8
# A hash function takes 32 bytes. In a small budget fewer of them leave more for the layers (docs/tried.md).
_FEWEST_HASHES = 8
_BYTES_OF_HASH = 32
_SHARE_OF_HASHES = 1 / 6


class DeepHashEmbedding(EmbeddingScheme):
    """Deep hash embedding (section 3 of the paper): a network computes the vectors, so there is no table.

    Its size does not depend on the vocabulary, and any id has a vector. `from_budget` chooses the network for a budget.
    Trained from nothing it learns slowly; `tableless.distil` and `tableless.replace_embeddings` fit it to a table.

    Args:
        embedding_dim: Dimensions of a vector.
        width: Units of a hidden layer (d_NN in the paper).
        depth: How many hidden layers there are (h in the paper).
        num_hashes: How many hash functions make the code of an id (k in the paper).
        num_buckets: How many buckets each hash function has (m in the paper).
        distribution: Numbers of a code are `"uniform"` in [-1, 1] or `"gaussian"`.
        activation: `"mish"`, `"relu"`, `"silu"`, `"tanh"` or `"sine"`.
        normalization: `"batch"` for batch norm after each hidden layer, or `"none"`.
        architecture: How the hidden layers are connected; `"equal-width"` is the paper's.
        num_experts: With more than one there are that many networks, each of this `width`. A hash of the id picks the
            one that computes its vector, so an id costs the arithmetic of one.
        encoding: Another one than `"dense-hash"` is for comparison (section 4.4) and needs `vocab_size`.
        vocab_size: How many ids there are. Only other encodings than `"dense-hash"` need it.
        side_features: What is known about ids; it becomes part of the code. A mapping, as in `config`, makes empty side
            features, to be filled by `add` or by a state dict.
        initial_std: The standard deviation of the vectors before training.
        weight_bits: How weights are stored: 32 is float32, 16 is bfloat16, and 8 down to 2 are integers with a scale
            for each unit. Biases and batch norm stay float32.
        packed: Is it built in the form that is stored, to be loaded? Otherwise in the form that is trained, in which
            weights are float32 and are rounded whenever they are used. `pack` and `unpack` turn one into the other.
        seed: Hash functions and weights follow from it.

    Example:
        ```python
        from tableless import DeepHashEmbedding, to_ids

        embedding = DeepHashEmbedding.from_budget("1/16", embedding_dim=32, vocab_size=100_000)
        vectors = embedding(to_ids(["user_42", "someone new"]))  # [2, 32]
        print(embedding.num_bytes)
        ```
    """

    open_vocabulary = True
    is_computed = True
    old_defaults: ClassVar[Mapping[str, Any]] = {"weight_bits": 32, "packed": False}

    def __init__(
        self,
        embedding_dim: int,
        *,
        width: int,
        depth: int = 5,
        num_hashes: int = 1024,
        num_buckets: int = 1_000_000,
        distribution: Literal["uniform", "gaussian"] = "uniform",
        activation: Activation = "mish",
        normalization: Normalization = "batch",
        architecture: Architecture = "equal-width",
        num_experts: int = 1,
        encoding: Encoding = "dense-hash",
        vocab_size: int | None = None,
        side_features: SideFeatures | Mapping[str, Any] | None = None,
        initial_std: float = INITIAL_STD,
        weight_bits: int = 32,
        packed: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.width = width
        self.depth = depth
        self.num_hashes = num_hashes
        self.num_buckets = num_buckets
        self.distribution = distribution
        self.activation = activation
        self.normalization = normalization
        self.architecture = architecture
        self.num_experts = num_experts
        self.encoding = encoding
        self.vocab_size = vocab_size
        self.initial_std = initial_std
        self.weight_bits = weight_bits
        self.packed = packed
        self.seed = seed
        encoder = encoder_to_compare(encoding, vocab_size, num_hashes, seed) or DenseHashEncoder(
            num_hashes, num_buckets=num_buckets, distribution=distribution, seed=seed
        )
        self.encoder = _with_side(encoder, side_features)
        self.open_vocabulary = self.encoder.open_vocabulary
        self.decoder = EmbeddingNetwork(
            self.encoder.code_dim,
            embedding_dim,
            width=width,
            depth=depth,
            activation=activation,
            normalization=normalization,
            architecture=architecture,
            num_experts=num_experts,
            code_mean_square=self.encoder.mean_square,
            initial_std=initial_std,
            weight_bits=weight_bits,
            packed=packed,
            seed=seed,
        )
        self.router = HashFamily(1, num_experts, derive_seed(seed, "expert")) if num_experts > 1 else None
        self._beginning = BeginningWatch()

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim], in the type of the weights. Repeated ids are computed once."""
        if self.training:
            self._beginning.see_batch(next(self.decoder.parameters()))
        return with_distinct_ids(self._compute, checked_ids(ids))

    def _compute(self, ids: Tensor) -> Tensor:
        if self.router is None:
            return self.decoder(self.encoder(ids))
        return self.decoder(self.encoder(ids), self.router(ids)[..., 0])

    def expect_training_from_nothing(self) -> None:
        """Do not warn: the training is one that is meant to begin with random weights."""
        self._beginning.stop()

    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Nothing can be computed: all rows are left to learn. A network that is fitted does not start from nothing."""
        self._beginning.stop()
        return super().fit_directly(ids, rows, metric=metric, weights=weights)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._beginning.stop()
        super()._load_from_state_dict(*args)

    @property
    def output_layer(self) -> tuple[Tensor, Tensor]:
        """The last layer of the network, of all experts."""
        output = self.decoder.output
        weight = output.weight.values if isinstance(output, RoundedLinear) else output.weight
        return weight, output.bias

    def pack(self) -> None:
        """Round the weights for good."""
        pack_all(self)
        self.packed = True

    def unpack(self) -> None:
        """Make the weights trainable again."""
        unpack_all(self)
        self.packed = False

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """Its network with batch norm folded in, in float32 or int8."""
        if precision == "int8":
            network = Int8Network(self.encoder, self.decoder, self.router, sample_ids)
            return Served(network, "int8" if network.rounds else "fp32")
        return Served(FloatNetwork(self.encoder, self.decoder, self.router))

    def exported(self) -> nn.Module:
        """With a network for each expert, so that an id costs one of them."""
        return ExpertsApart(self.encoder, self.decoder, self.router)

    @property
    def side_features(self) -> SideFeatures | None:
        """The side features in the encoding, if there are any: `scheme.side_features.add(ids, rows)`."""
        return self.encoder.side_features if isinstance(self.encoder, SideFeatureEncoder) else None

    @property
    def config(self) -> dict[str, Any]:
        """As for every scheme. Of the side features it has their kind only: their rows are in the state dict."""
        config = super().config
        if self.side_features is not None:
            config["side_features"] = self.side_features.config
        return config

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0, **options: Any) -> Self:
        """The widest network the budget pays for, in the shape that memorises best (docs/decisions.md).

        A budget in bytes is spent on weights of 8 bits, a number of parameters on weights of 32 bits. If it is small,
        there are fewer hash functions, so that they take no more than about a sixth of it. `options` are constructor
        arguments that replace those of that shape; `**PAPER_NETWORK` gives the network of the paper.
        `vocab_size` says what a budget like "1/16" comes to. The scheme serves ids beyond it just as well, except with
        an encoding that depends on the vocabulary.
        """
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        bits = options.get("weight_bits", 32 if allowed.unit == "parameters" else _BEST_BITS)
        require_bits("weight_bits", bits)
        num_weights = allowed.amount if allowed.unit == "parameters" else allowed.amount * 8 / bits
        num_experts = max(1, round(num_weights / _PARAMETERS_PER_EXPERT))
        chosen = {**_BEST_NETWORK, "weight_bits": bits, "num_experts": num_experts, **options}
        if chosen.get("encoding", "dense-hash") != "dense-hash":
            chosen["vocab_size"] = vocab_size
        elif "num_hashes" not in options and allowed.unit == "bytes":
            chosen["num_hashes"] = cls._affordable_hashes(allowed, embedding_dim, chosen)
        return fit_to_budget(lambda width: cls(embedding_dim, width=width, seed=seed, **chosen), allowed)

    @classmethod
    def _affordable_hashes(cls, allowed: Allowance, embedding_dim: int, chosen: Mapping[str, Any]) -> int:
        """Half as many as usual, or a quarter, …, where the hash functions would take too much of the budget."""
        with torch.device("meta"):
            smallest = cls(embedding_dim, width=1, **{**chosen, "num_hashes": _FEWEST_HASHES})
        left = allowed.amount - smallest.num_bytes
        num_hashes: int = chosen["num_hashes"]
        while num_hashes > _FEWEST_HASHES and num_hashes * _BYTES_OF_HASH > left * _SHARE_OF_HASHES:
            num_hashes //= 2
        return num_hashes


def network_arguments(network: DeepHashEmbedding) -> dict[str, Any]:
    """The arguments that build it again, without those that a scheme around it has as well."""
    shared = ("embedding_dim", "initial_std", "packed", "seed")
    return {name: value for name, value in network.config.items() if name not in shared}


def _with_side(encoder: Encoder, side_features: SideFeatures | Mapping[str, Any] | None) -> Encoder:
    if side_features is None:
        return encoder
    side = side_features if isinstance(side_features, SideFeatures) else SideFeatures(**side_features)
    return SideFeatureEncoder(encoder, side)

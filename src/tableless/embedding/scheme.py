"""EmbeddingScheme, the one interface of everything that turns ids into vectors."""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from .budget import Budget
from .id_batches import checked_ids
from .id_rows import MOST_IDS, IdRows

Precision = Literal["fp32", "int8"]
"""How a network computes when it serves: in 32-bit floats, or its hidden layers in 8-bit integers."""

INITIAL_STD = 0.01
"""The standard deviation embeddings start at. Recommenders start their tables small (NCF, which the paper follows:
normal with 0.01; DLRM: below 1/sqrt(rows)). The first scores are then near zero, and an id that is hardly ever trained
has little influence. With `nn.Embedding`'s own N(0, 1), untrained ids would have the largest vectors of all."""


@dataclass(frozen=True)
class Served:
    """A scheme in the form that answers requests (`EmbeddingScheme.served`)."""

    vectors: Callable[[Tensor], Tensor]
    """Distinct ids, int64 [n] -> float32 [n, embedding_dim]."""
    precision: Precision = "fp32"
    """What is really computed."""


class EmbeddingScheme(nn.Module, ABC):
    """A way of turning ids into vectors.

    Schemes are final: to vary one, wrap it or hand it something else. Constructor arguments are plain values, and the
    scheme keeps each under its own name: `config` reads them from there.
    """

    open_vocabulary: bool
    """May it be asked about ids it was not sized for? (On the class: with default arguments.)"""
    is_computed: bool = False
    """Does a network compute its vectors? If not, they are looked up in tables."""
    is_the_table: bool = False
    """Does it hold every row of a table as it is? Then there is nothing to fit."""
    needs_table: bool = False
    """Can it only be fitted to the rows of a trained table? Then nothing is learned from random numbers."""
    rounds_rows: bool = False
    """Does a fit round every row to one of few values? Then users and items are fitted by turns (by_turns.py)."""
    without_lengths: ClassVar[Mapping[str, Any]] = {}
    """Options of `from_budget` for rows of which only the direction counts, as for users whose scores are products."""
    num_experts: int = 1
    """How many networks share the ids. Each id belongs to one of them."""
    tuning_rate: float = 1e-3
    """Adam's rate when a fitted scheme is trained further on data (the last stage of the fast recipe)."""
    on_rows: Callable[[int, int], None] | None = None
    """If set, `fit_directly` may call it with how many rows are done, and how many there are."""
    embedding_dim: int
    old_defaults: ClassVar[Mapping[str, Any]] = {}
    """Arguments that older versions did not have. A scheme saved without one is built again with the value here."""

    @abstractmethod
    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim], in the type of the weights."""

    @classmethod
    @abstractmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """The largest instance that keeps to the budget (budget.py says how budgets are written)."""

    @classmethod
    def for_rows(cls, budget: Budget, rows: Tensor, *, seed: int = 0, check_bits: int = 0) -> Self:
        """The instance for a budget that suits the rows of a trained table, [vocab_size, embedding_dim], unfitted.

        By default that is `from_budget`, whatever the rows are. Only a scheme that can tell ids that were put in from
        others has `check_bits`.
        """
        if check_bits:
            raise ValueError(f"{cls.__name__} has no check bits; leave check_bits={check_bits} away, or take 'coded'")
        return cls.from_budget(budget, embedding_dim=rows.shape[-1], vocab_size=len(rows), seed=seed)

    def assign_frequent(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Before training: the ids [n] and how often each occurs. A scheme with rows for frequent ids chooses them.

        These are arrays, which may be mapped files, because most schemes do nothing with them.
        """

    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Set what can be computed from the rows of a trained table without steps (by default nothing).

        An error e of row i counts weights[i] · ‖e @ metric‖². Returns the part of the scheme that must still learn by
        steps, and from which rows: a mask over `ids`, false everywhere if nothing is left to learn.
        """
        return self, torch.ones(len(ids), dtype=torch.bool, device=ids.device)

    def learned_part(self, ids: Tensor) -> tuple[EmbeddingScheme, Tensor]:
        """The part that learns by steps, and the ids that get their vectors from it: a mask over `ids`."""
        return self, torch.ones(len(ids), dtype=torch.bool, device=ids.device)

    def expect_training_from_nothing(self) -> None:
        """Training from random weights is meant, so the scheme does not warn of it (by default it never does)."""

    @property
    def output_layer(self) -> tuple[Tensor, Tensor] | None:
        """Weights and bias of the linear layer that all vectors come out of; None (the default) if there is none.

        A scheme that learns by steps is then fitted to rows without their mean and scale, and gets those here at the
        end. The last axis of the bias is `embedding_dim`.
        """
        return None

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """The scheme as it answers requests: evaluation on the CPU, without gradients (by default the scheme itself).

        It may copy the weights: the caller asks again when they have changed. `sample_ids` [n] are ids that show how
        large the numbers inside a network become, which sets the scales of int8. A scheme without anything to round
        computes in fp32, and says so.
        """
        return Served(self)

    def exported(self) -> nn.Module:
        """The scheme as it is exported: int64 [n] -> float32 [n, embedding_dim] (by default the scheme itself).

        A scheme overrides it if another form is quicker in a program whose shapes do not depend on the data.
        """
        return self

    @property
    def lists_ids(self) -> bool:
        """Must a run list the known ids? By default it must for a closed scheme, which is fed row numbers."""
        return not self.open_vocabulary

    @property
    def num_known_ids(self) -> int | None:
        """A closed scheme knows the ids 0 to `num_known_ids` - 1; None if it is open to any id."""
        return None if self.open_vocabulary else int(self.config["vocab_size"])

    @property
    def num_parameters(self) -> int:
        """Parameters that are trained, also of a packed scheme; hash coefficients are buffers and do not count."""
        config, trained = self.config, self
        if config.get("packed", False):
            with torch.device("meta"):
                trained = type(self)(**{**config, "packed": False})
        return sum(parameter.numel() for parameter in trained.parameters())

    def pack(self) -> None:
        """Round what is trained to the form that is stored, for good (by default they are the same).

        A scheme with numbers of few bits has two forms. The constructor's argument `packed` says which: False while it
        is trained, with float32 parameters that are rounded in each forward pass; True where it is stored, loaded and
        served, with the few bits alone. Both give the same vectors.
        """

    def unpack(self) -> None:
        """Make a packed scheme trainable again (by default nothing has to be done). Its vectors stay the same.

        Its parameters are new ones, so an optimizer is made afterwards.
        """

    def stored(self) -> EmbeddingScheme:
        """The scheme as it is stored: itself, or a packed copy if it is in the form that is trained."""
        if self.config.get("packed", True):
            return self
        copied = copy.deepcopy(self)
        copied.pack()
        return copied

    def bytes_by_part(self) -> dict[str, int]:
        """The bytes that must be stored to answer for raw ids, by part, in the form in which the scheme is stored.

        These are all tensors of the state dict: weights, scales, codes, codebooks, the coefficients of hash functions,
        lists of ids, side features. A closed scheme is fed row numbers, so the smallest map that finds a row by its raw
        id counts as well (`IdRows`, the part "id map").
        """
        parts: dict[str, int] = {}
        own = self.state_dict()
        for name, tensor in self._as_stored().state_dict().items():
            # What both forms have is counted as it is here: a config does not have the rows of side features.
            tensor = own[name] if name in own and own[name].dtype == tensor.dtype else tensor
            part = self.part_of(name)
            parts[part] = parts.get(part, 0) + tensor.numel() * tensor.element_size()
        if self.num_known_ids is not None:
            parts["id map"] = bytes_of_id_map(self.num_known_ids)
        return parts

    def part_of(self, name: str) -> str:
        """What a tensor of the state dict is called in `bytes_by_part`."""
        if "side_features." in name:
            return "side features"
        if name.endswith("coefficients"):
            return "hash functions"
        return "list of ids" if name.endswith(".ids") else "weights"

    @property
    def num_bytes(self) -> int:
        """All bytes that must be stored to answer for raw ids."""
        return sum(self.bytes_by_part().values())

    def _as_stored(self) -> EmbeddingScheme:
        """Something with the tensors that are stored: itself, or its packed form on the meta device."""
        config = self.config
        if config.get("packed", True):
            return self
        with torch.device("meta"):
            return type(self)(**{**config, "packed": True})

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build the same scheme again: `type(scheme)(**scheme.config)`."""
        arguments = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {argument: getattr(self, argument) for argument in arguments}

    def extra_repr(self) -> str:
        """What `print` shows."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config.items())


@functools.lru_cache(maxsize=64)  # to fit a budget, a scheme of the same ids is counted dozens of times
def bytes_of_id_map(num_ids: int) -> int:
    """Bytes of the smallest map from raw ids to the rows 0 to `num_ids` - 1 (of several maps, for billions of ids)."""
    num_maps = -(-num_ids // MOST_IDS)
    with torch.device("meta"):
        return num_maps * IdRows(-(-num_ids // num_maps)).num_bytes if num_ids else 0


def require_known(ids: Tensor, vocab_size: int) -> None:
    """Refuse ids without a row. Compiled and exported programs can't look at the ids, so they skip that check."""
    checked_ids(ids)
    if torch.compiler.is_compiling() or not ids.numel() or ids.is_meta:
        return
    lowest, highest = torch.aminmax(ids)
    if lowest < 0 or highest >= vocab_size:
        unknown = int(lowest) if lowest < 0 else int(highest)
        raise IndexError(
            f"id {unknown} has no row: this scheme was sized for the ids 0 to {vocab_size - 1}. "
            "Number raw ids from 0 first, or take a scheme that is open to new ids, such as 'dhe'"
        )


def like_vectors(scheme: EmbeddingScheme) -> Tensor:
    """An empty tensor of the type and on the device that the vectors of a scheme have, packed or not."""
    tensors = [*scheme.parameters(), *scheme.buffers()]
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    return floats[0].new_empty(0) if floats else torch.empty(0, device=tensors[0].device)


def normal(*shape: int, std: float, generator: torch.Generator) -> nn.Parameter:
    """A parameter that starts normal around zero."""
    if not float(std) >= 0:  # as torch says it, and before any memory is taken
        raise ValueError(f"the standard deviation of starting weights is {std}; it must be 0 or more")
    values = torch.empty(*shape)
    # On the meta device there is nothing to draw, and torch would import its compiler for it: two seconds at a load.
    return nn.Parameter(values if values.is_meta else values.normal_(0.0, std, generator=generator))


def seeded(seed: int) -> torch.Generator:
    """The source of a scheme's initial weights. Each scheme has its own, so the order of building does not matter."""
    return torch.Generator(device="cpu").manual_seed(seed % 2**63)

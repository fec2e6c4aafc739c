"""EmbeddingScheme, the one interface of everything that turns ids into vectors, and how a scheme fits a budget."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

Budget = int | str
"""A number of trainable parameters, a share of the full table ("1/4"), or memory for float32 weights ("64MB")."""

INITIAL_STD = 0.01
"""The standard deviation embeddings start at. Recommenders start their tables small (NCF, which the paper follows:
normal with 0.01; DLRM: below 1/sqrt(rows)), so that the first scores are near zero and an id that is hardly ever
trained says little. `nn.Embedding`'s own N(0, 1) would make untrained ids the loudest."""

_BYTES_PER_PARAMETER = 4
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class EmbeddingScheme(nn.Module, ABC):
    """A way of turning ids into vectors.

    Schemes are final: to vary one, wrap it or hand it something else. Constructor arguments are plain values kept
    under their own names, which is what makes `config` work.
    """

    open_vocabulary: bool
    """May it be asked about ids it was not sized for? (On the class: with default arguments.)"""
    is_computed: bool = False
    """Are its vectors computed by a network rather than looked up in tables?"""
    is_the_table: bool = False
    """Does it hold every row of a table as it is? Then there is nothing to fit."""
    tuning_rate: float = 1e-3
    """Adam's rate when a fitted scheme is trained further on data (the last stage of the fast recipe)."""
    embedding_dim: int
    old_defaults: ClassVar[Mapping[str, Any]] = {}
    """How schemes were before an argument existed: one that was saved without it is built again with this value."""

    @abstractmethod
    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""

    @classmethod
    @abstractmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """The largest instance with at most `budget` trainable parameters."""

    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Set what can be computed from the rows of a trained table without steps (nothing, unless a scheme says so).

        An error e of row i counts weights[i] · ‖e @ metric‖². Returns the part of the scheme that must still learn by
        steps, and from which rows: a mask over `ids`, false everywhere if nothing is left to learn.
        """
        return self, torch.ones(len(ids), dtype=torch.bool, device=ids.device)

    @property
    def num_parameters(self) -> int:
        """Trainable parameters; hash coefficients are buffers and do not count."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build the same scheme again: `type(scheme)(**scheme.config)`."""
        arguments = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {argument: getattr(self, argument) for argument in arguments}

    def extra_repr(self) -> str:
        """What `print` shows."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config.items())


Scheme = TypeVar("Scheme", bound=nn.Module)


def fit_to_budget(build: Callable[[int], Scheme], budget: int, *, smallest: int = 1, largest: int = 2**40) -> Scheme:
    """`build(size)` for the largest size that has at most `budget` parameters; they must not fall as size grows.

    Candidates are built on the meta device, without memory, so the count is the module's own.
    """

    def cost(size: int) -> int:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in build(size).parameters())

    if cost(smallest) > budget:
        raise ValueError(
            f"a budget of {budget} parameters is too small; the smallest possible here is {cost(smallest)}"
        )
    fits, step = smallest, 1
    while fits + step <= largest and cost(fits + step) <= budget:
        fits, step = fits + step, step * 2
    while step:
        if fits + step <= largest and cost(fits + step) <= budget:
            fits += step
        step //= 2
    return build(fits)


def is_share(budget: Budget) -> bool:
    """Is the budget a share of the full table ("1/4", "0.25")? Then it needs a known vocabulary; "1.5MB" does not."""
    text = str(budget)
    return _memory(text) is None and ("/" in text or "." in text)


def resolve_budget(budget: Budget, *, embedding_dim: int, vocab_size: int) -> int:
    """A budget in any of its forms as a number of parameters."""
    text = str(budget).strip()
    memory = _memory(text)
    try:
        if memory:
            number = Fraction(memory[1]) * _UNITS[memory[2].upper()] / _BYTES_PER_PARAMETER
        elif is_share(text):
            number = Fraction(text) * embedding_dim * vocab_size
        else:
            number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"a budget of {budget!r} is not understood; give a number of parameters (1_000_000), a share of the full "
            'table ("1/4"), or memory ("64MB")'
        ) from None
    if number < 1:
        raise ValueError(f"a budget of {budget!r} comes to less than one parameter")
    return int(number)


def _memory(text: str) -> re.Match[str] | None:
    """Number and unit of a budget that is memory."""
    return re.fullmatch(r"\s*([\d.]+)\s*([KMG]i?B)\s*", text, re.IGNORECASE)


def require_known(ids: Tensor, vocab_size: int) -> None:
    """Refuse ids without a row. Compiled and exported programs can't raise and skip the check."""
    if torch.compiler.is_compiling() or not ids.numel() or ids.is_meta:
        return
    lowest, highest = torch.aminmax(ids)
    if lowest < 0 or highest >= vocab_size:
        unknown = int(lowest) if lowest < 0 else int(highest)
        raise IndexError(
            f"id {unknown} has no row: this scheme was sized for the ids 0 to {vocab_size - 1}. "
            "Number raw ids from 0 first, or take a scheme that is open to new ids, such as 'dhe'"
        )


def normal(*shape: int, std: float, generator: torch.Generator) -> nn.Parameter:
    """A parameter that starts normal around zero."""
    return nn.Parameter(torch.empty(*shape).normal_(0.0, std, generator=generator))


def seeded(seed: int) -> torch.Generator:
    """The source of a scheme's initial weights: its own, so that construction order does not matter."""
    return torch.Generator(device="cpu").manual_seed(seed % 2**63)

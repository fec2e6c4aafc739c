"""Does an exported file compute what the model computes?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..embedding.scheme import EmbeddingScheme, seeded
from .export_modules import num_rows

Precision = Literal["fp32", "int8"]

CHECKED = 1000
"""Ids that an exported file is run on before it is kept."""
LARGEST_DIFFERENCE = 1e-5
"""Between fp32 and the original, as a share of the largest value."""
MEAN_COSINE, LOWEST_COSINE = 0.99, 0.9
"""Between int8 and the original, over all vectors, and for any one (a wrong hash would bring it near zero)."""

_EXTREMES = [0, 1, -1, 2**31, 2**63 - 1, -(2**63)]
_LISTED = 100  # of the ids that a scheme treats apart from others


@dataclass(frozen=True)
class Agreement:
    """How far a file is from the model on `checked` ids or pairs; for scores, both cosines are their correlation."""

    checked: int
    max_difference: float
    relative_difference: float  # of the largest value
    mean_cosine: float
    lowest_cosine: float

    def require(self, precision: Precision, name: str) -> None:
        """Refuse a file that is further away than its precision excuses (or has NaN where the model has none)."""
        close = self.relative_difference <= LARGEST_DIFFERENCE
        alike = self.mean_cosine >= MEAN_COSINE and self.lowest_cosine >= LOWEST_COSINE
        if precision == "fp32" and not close:
            raise ValueError(
                f"{name} is not kept: on {self.checked} ids it differs from the model by up to "
                f"{self.max_difference:.2g}, {self.relative_difference:.1g} of the largest value; "
                f"{LARGEST_DIFFERENCE:g} is allowed"
            )
        if precision == "int8" and not alike:
            raise ValueError(
                f"{name} is not kept: on {self.checked} ids the cosine to what the model says is "
                f"{self.mean_cosine:.4f}, at the lowest {self.lowest_cosine:.4f}; {MEAN_COSINE} and {LOWEST_COSINE} "
                "are asked. Export this run as fp32"
            )


def compare(exported: Callable[..., Tensor], original: Callable[..., Tensor], *inputs: Tensor) -> Agreement:
    """Run both on inputs [n]: the file in three batches, one of them a single id, the original in one."""
    sizes = [1, 7, len(inputs[0]) - 8]
    batches = zip(*(torch.split(own, sizes) for own in inputs), strict=True)
    with torch.no_grad():
        got = torch.cat([exported(*batch) for batch in batches]).double()
        wanted = original(*inputs).double()
    difference, largest = float((got - wanted).abs().max()), float(wanted.abs().max())
    if wanted.ndim == 1:  # scores: a level that all of them share would hide how they differ
        got, wanted = got - got.mean(), wanted - wanted.mean()
    cosine = torch.cosine_similarity(got, wanted, dim=-1)
    relative = difference / max(largest, 1e-30)
    return Agreement(len(inputs[0]), difference, relative, float(cosine.mean()), float(cosine.min()))


def ids_to_check(scheme: EmbeddingScheme, *, count: int = CHECKED, seed: int = 0) -> Tensor:
    """Ids over the whole int64 range, of every size and both signs; the rows of a closed scheme.

    Those that an open scheme treats apart, because they have a row or features of their own, are among them.
    """
    rows = num_rows(scheme)
    if rows is not None:
        return torch.linspace(0, rows - 1, count, dtype=torch.float64).round().long()
    powers = [sign * 2**exponent for exponent in range(1, 63) for sign in (1, -1)]
    listed = [buffer for name, buffer in scheme.named_buffers() if name.rpartition(".")[-1] == "ids"]
    special = torch.cat([torch.tensor(_EXTREMES + powers), *(_spread(ids) for ids in listed)])
    anywhere = torch.randint(-(2**63), 2**63 - 1, (count - len(special),), generator=seeded(seed))
    return torch.cat([special, anywhere])


def _spread(ids: Tensor) -> Tensor:
    """Some of a list of ids, the first and the last among them."""
    if not len(ids):
        return ids
    return ids[torch.linspace(0, len(ids) - 1, _LISTED, dtype=torch.float64).round().long()]

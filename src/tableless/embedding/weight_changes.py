"""How the weights of a module change: `Watch` tells whether they have changed since they were last used, and
`BeginningWatch` warns if a network is trained from nothing by steps that are known to be too small.
"""

from __future__ import annotations

import statistics
import warnings

import torch
from torch import Tensor, nn


class Watch:
    """Remembers the parameters and buffers of a module, and tells whether they have changed since.

    That costs a glance at each tensor: torch counts how often it was written to.
    """

    def __init__(self, module: nn.Module) -> None:
        self._seen: list[tuple[dict[str, Tensor | None], str, Tensor, int]] = []
        for part in module.modules():
            for owner in (part._parameters, part._buffers):
                for name, tensor in owner.items():
                    if tensor is not None:
                        self._seen.append((owner, name, tensor, _version(tensor)))  # type: ignore[arg-type]

    def has_changed(self) -> bool:
        """Has a tensor been written to, or replaced by another? (Torch does not count writing to `.data`.)"""
        return any(
            owner[name] is not tensor or tensor._version != version for owner, name, tensor, version in self._seen
        )


def _version(tensor: Tensor) -> int:
    if tensor.is_inference():
        raise ValueError(
            "the scheme was built under torch.inference_mode(), where torch does not record changes; build it outside"
        )
    return tensor._version


# Shorter trainings are tests or the first minutes of a long one.
_BATCHES = 200
# A single step says little: one look may be off by a factor of ten.
_LOOKS = 9
_WEIGHTS = 10_000  # so many are looked at
_LARGE = 0.99  # the quantile of the moves of the weights that stands for a step
# Adam's step, so measured, is about half its rate: 0.0006 or less at a rate of 0.001, by which a network learned no
# more than popularity, and 0.0012 or more at 0.003, which works in an example (docs/tried.md).
_SMALL_STEP = 8e-4


class TrainedFromNothing(UserWarning):
    """A deep hash embedding is trained from nothing, by steps that are known to be too small for it.

    Train a table first and replace it then (`tableless.replace_embeddings`), or let `tableless.train` do both.

    Example:
        ```python
        import warnings
        from tableless import TrainedFromNothing

        warnings.filterwarnings("ignore", category=TrainedFromNothing)  # if it is meant, as for a stream
        ```
    """


class BeginningWatch:
    """Looks at the first training batches of a network, and warns once if it is trained from nothing by small steps.

    A layer does not see its optimizer, so the size of a step is read from the weights: after `_BATCHES` batches,
    as the median of `_LOOKS` steps. Weights that a fit or a checkpoint has set are not watched.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._before: Tensor | None = None
        self._steps: list[float] = []
        self._is_over = False

    def stop(self) -> None:
        """The network was fitted or loaded, or training it from nothing is meant."""
        self._is_over, self._before = True, None

    def see_batch(self, weight: Tensor) -> None:
        """To be called before each training batch with the weight of the first layer."""
        if self._is_over or not torch.is_grad_enabled() or torch.compiler.is_compiling() or not weight.requires_grad:
            return
        self._batches += 1
        if self._batches < _BATCHES:
            return
        before, self._before = self._before, _some_of(weight)
        if before is None:
            return
        moves = (self._before - before.to(self._before)).abs()
        if not moves.any():  # gradients are collected over several batches, or nothing is trained
            return
        self._steps.append(float(moves.quantile(_LARGE)))
        if len(self._steps) < _LOOKS:
            return
        self.stop()
        if statistics.median(self._steps) <= _SMALL_STEP:
            warnings.warn(_TEXT, TrainedFromNothing, stacklevel=2)


def _some_of(weight: Tensor) -> Tensor:
    """A copy of numbers from all parts of a weight."""
    numbers = weight.detach().flatten()
    return numbers[:: -(-len(numbers) // _WEIGHTS)].float().clone()


_TEXT = (
    "this DeepHashEmbedding is trained from nothing by small steps (such as those of Adam at 1e-3). It learns slowly "
    "that way: a recommender stays near what popularity alone gives. Train the model with nn.Embedding first and then "
    "call tableless.replace_embeddings(model, ...), or use tableless.train, which does both. Training from nothing is "
    "meant for streams and where no table is possible: use a higher rate there, and silence this warning by "
    'warnings.filterwarnings("ignore", category=tableless.TrainedFromNothing)'
)

"""Everything a `StreamLearner` has, as tensors: what a checkpoint holds, and the way back.

A learner that is restored goes on as the other would have: the same batches give the same numbers, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .stream_learner import StreamLearner

_OF_SIDE = ("held", "uses", "rows", "squares", "lost_ids", "lost_rows")


def state_of(learner: StreamLearner) -> dict[str, Tensor]:
    """A copy of all that was learned, counted and sampled."""
    state = {name: value.detach().clone() for name, value in _tensors(learner).items()}
    for owner, name, prefix in _arrays(learner):
        if len(array := getattr(owner, name)):  # an empty one is what a new learner has
            state[f"{prefix}.{name}"] = torch.tensor(array)
    for prefix, adam in learner.optimizers().items():
        for number, own in adam.state_dict()["state"].items():
            for name, value in own.items():
                state[f"{prefix}.{number}.{name}"] = value.clone()
    numbers = [learner.num_batches, learner.recent.num_actions, learner.past.num_actions]
    state["numbers"] = torch.tensor([*numbers, learner.users.evictions, learner.items.evictions])
    return state


def restore(learner: StreamLearner, state: Mapping[str, Tensor]) -> None:
    """Make a new learner of the same budget and config what the other was.

    Raises:
        ValueError: The state is that of a learner of another size.
    """
    for name, value in _tensors(learner).items():
        if name not in state or state[name].shape != value.shape:
            raise ValueError(
                f"the state of the stream is that of a learner of another size ({name}); go on with the budget, the "
                "dimensions and the half-life that it was begun with, or give another --out"
            )
        with torch.no_grad():
            value.copy_(state[name])
    for owner, name, prefix in _arrays(learner):
        if f"{prefix}.{name}" in state:
            setattr(owner, name, state[f"{prefix}.{name}"].numpy().copy())
    for prefix, adam in learner.optimizers().items():
        own: dict[int, dict[str, Any]] = {}
        for key, value in state.items():
            if key.startswith(f"{prefix}."):
                number, name = key.removeprefix(f"{prefix}.").split(".")
                own.setdefault(int(number), {})[name] = value.clone()
        adam.load_state_dict({**adam.state_dict(), "state": own})
    numbers = state["numbers"].tolist()
    learner.num_batches, learner.recent.num_actions, learner.past.num_actions = numbers[:3]
    learner.users.evictions, learner.items.evictions = numbers[3:]


def _tensors(learner: StreamLearner) -> dict[str, Tensor]:
    """What modules hold: changed in place."""
    modules = {"popularity": learner.popularity, "user_counts": learner.user_counts}
    for name, side in (("users", learner.users), ("items", learner.items)):
        modules |= {f"{name}.network": side.network, f"{name}.slow": side.slow}
    return {f"{name}.{key}": value for name, own in modules.items() for key, value in own.state_dict().items()}


def _arrays(learner: StreamLearner) -> Iterator[tuple[Any, str, str]]:
    """What is replaced as a whole: the object, the name of its attribute, and what it is called."""
    for prefix, side in (("users", learner.users), ("items", learner.items)):
        for name in _OF_SIDE:
            yield side, name, prefix
    yield learner.seen, "values", "seen"
    yield learner.recent, "ring", "recent"
    yield learner.past, "pairs", "past"

"""Models of any library: how a batch is given to them, what they answer, and the mode they are in."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_NOT_AN_ANSWER = "loss"  # models of transformers that are given labels have one beside their answers


def call_with(model: nn.Module, batch: Any) -> Any:
    """`model(**batch)` if its forward takes these names, `model(*batch)` for a tuple or list, else `model(batch)`."""
    if isinstance(batch, Mapping) and _takes(model, **{str(name): value for name, value in batch.items()}):
        return model(**batch)
    if type(batch) not in (tuple, list):
        return model(batch)
    if _takes(model, *batch):
        return model(*batch)
    raise TypeError(
        f"a batch has {len(batch)} parts, and the forward of {type(model).__name__} does not take so many; say how it "
        "is given, such as call=lambda model, batch: model(batch[0]) if labels come after the inputs"
    )


def _takes(model: nn.Module, *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def answers_of(output: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Each tensor of floats in an output, with its name: keys, fields and positions, joined by points."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield name, output
        return
    parts: Mapping[Any, Any] = {}
    if isinstance(output, Mapping):
        parts = output
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        parts = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    elif isinstance(output, (tuple, list)):
        parts = dict(zip(getattr(output, "_fields", range(len(output))), output, strict=True))
    for key, value in parts.items():
        if key != _NOT_AN_ANSWER:
            yield from answers_of(value, f"{name}.{key}" if name else str(key))


def on_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device; what is no tensor stays as it is."""
    if hasattr(batch, "to") and callable(batch.to):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: on_device(value, device) for name, value in batch.items()}
    if type(batch) in (tuple, list):
        return type(batch)(on_device(value, device) for value in batch)
    return batch


def device_of(model: nn.Module) -> torch.device:
    """Where the first of its tensors is."""
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def number_of(batches: Iterable[Any]) -> int:
    """How many batches there are. Without a length they are gone over once."""
    if isinstance(batches, Sized):
        try:
            return len(batches)
        except TypeError:  # a DataLoader of a stream has the method, and no length
            pass
    return sum(1 for _ in batches)


@contextmanager
def modes_kept(*models: nn.Module) -> Iterator[None]:
    """Whatever is done inside, all modules are then in training or eval mode as they were."""
    modes = {module: module.training for model in models for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.train(mode)  # not only the flag: modules of ours give up what they keep
        for module, mode in modes.items():
            module.training = mode

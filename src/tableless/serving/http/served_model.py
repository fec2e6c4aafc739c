"""The model that answers at the moment, with what it needs to be asked from an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from ...recommender.answers import Side
from ..trained_model import TrainedModel
from .batching import Batcher, Ids, Vectors
from .limits import Refusal
from .metrics import Metrics
from .raw_ids import as_int64

_Result = TypeVar("_Result")


class ServedModel:
    """A model and its batchers. Requests take hold of one of these and stay with it, whatever is loaded meanwhile."""

    def __init__(self, model: TrainedModel, *, metrics: Metrics, threads: ThreadPoolExecutor) -> None:
        self.model = model
        self._threads = threads
        self._batchers: dict[Side, Batcher] = {
            side: Batcher(
                functools.partial(_embed, model, side), name=side, on_batch=functools.partial(metrics.count_batch, side)
            )
            for side in ("user", "item")
        }

    async def embed(self, ids: Ids, side: Side) -> Vectors:
        """Int64 [n] -> float32 [n, dim], together with whoever else is asking."""
        try:
            return await self._batchers[side].submit(ids)
        except ValueError as error:
            raise self._unknown(error) from None

    async def ask(self, question: Callable[[TrainedModel], _Result]) -> _Result:
        """Anything else, in a thread. What the model refuses is not found."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, question, self.model)
        except ValueError as error:
            raise self._unknown(error) from None

    def ids(self, side: Side, raw: list[int] | list[str]) -> Ids:
        """Checked raw ids -> int64 [n]."""
        if raw:
            self.refuse_other_kind(side, raw[0])
        return as_int64(raw)

    def refuse_other_kind(self, side: Side, raw: int | str) -> None:
        """A string is no id where the data has integers; an integer is one everywhere (see `to_ids`)."""
        if isinstance(raw, str) and self.model.config["kinds"][side] == "integer":
            raise Refusal(404, f"There is no such {side}: {side} ids are integers in this data, and this is a string.")

    def close(self) -> None:
        """Answer what was asked, and end."""
        for batcher in self._batchers.values():
            batcher.close()

    def _unknown(self, error: ValueError) -> Refusal:
        return Refusal(404, str(error).replace(str(self.model.directory), "this run"))


def _embed(model: TrainedModel, side: Side, ids: Ids) -> Vectors:
    return model.embed(torch.from_numpy(ids), side=side).numpy()

"""The journal of a training run: what must survive a stop, so that `--resume` ends where an undisturbed run would."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor, tensor

from ..data.interactions import Interactions
from ..files.scheme_directory import read_json
from ..files.whole import load_tensors, save_tensors, write_text
from .features import Features
from .models import Recommender
from .run_directory import RunDirectory, item_list
from .training import EpochReport, TrainConfig


class TrainingJournal:
    """Writes a run directory epoch by epoch, and reads what an earlier attempt left in it.

    Of several processes the first writes; all of them read, since all must go on from the same place.
    """

    def __init__(
        self, directory: str | os.PathLike[str], config: Mapping[str, Any], *, resume: bool, writes: bool = True
    ) -> None:
        self.files = RunDirectory(directory)
        self.config = dict(config)
        self._resume = resume
        self._writes = writes
        if not writes:
            return
        if resume and self.files.config.exists():
            self._refuse_another_run()
        else:
            self.files.require_free()

    def resume(self) -> tuple[list[EpochReport], dict[str, Tensor]]:
        """The epochs that were finished and the state after them."""
        state, metrics = self.files.resume_state, self.files.metrics
        if not self._resume or not state.exists():
            return [], {}
        tensors = load_tensors(state)
        done = int(tensors.pop("epochs").item())
        lines = metrics.read_text(encoding="utf-8").splitlines()
        try:
            return [EpochReport(**json.loads(line)) for line in lines[:done]], tensors
        except (ValueError, TypeError):
            raise ValueError(
                f"{metrics} is damaged, and {state.name} cannot be resumed without it; give another --out"
            ) from None

    def start(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]] | None:
        """What training began with (weights, a teacher) and the stages before, if an earlier attempt got that far."""
        weights, stages = self.files.start_weights, self.files.start_stages
        if not self._resume or not weights.exists():
            return None
        return load_tensors(weights), read_json(stages)["stages"] if stages.exists() else []

    def keep_start(self, model: Mapping[str, Tensor], stages: Sequence[Mapping[str, Any]]) -> None:
        """Keep what training begins with, and what was done to get there. The weights are written last."""
        if not self._writes:
            return
        self.files.write_config(self.config)
        write_text(self.files.start_stages, json.dumps({"stages": list(stages)}, indent=2) + "\n")
        save_tensors(model, self.files.start_weights)

    def record(self, report: EpochReport, model: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Add an epoch. The state that says how many epochs count is written last."""
        if not self._writes:
            return
        metrics = self.files.metrics
        earlier = metrics.read_text(encoding="utf-8").splitlines()[: report.epoch] if report.epoch else []
        write_text(metrics, "\n".join([*earlier, json.dumps(asdict(report))]) + "\n")
        if report.is_best or not self.files.weights.exists():
            self.files.write_model(self.config, model)
        save_tensors({**state, "epochs": tensor(report.epoch + 1)}, self.files.resume_state)
        self._add_to_tensorboard(report)

    def finish(
        self,
        model: Recommender,
        config: Mapping[str, Any],
        train: Interactions,
        results: Mapping[str, Any],
        *,
        features: Features = Features(),  # noqa: B008 - frozen
    ) -> None:
        """Write the packed model and its config, lists of items and users, then what was measured.

        Ids of which only `features` are known stand behind the others.

        With the results, the run has ended. What is needed to train on stays as it was, in the form that is trained.
        """
        if not self._writes:
            return
        self.files.write_model(config, model.state_dict())
        names = train.item_names if train.item_names is not None else np.array(train.item_ids)
        counts = np.bincount(train.items, minlength=train.num_items)
        items = item_list(names, ids=train.item_ids, actions=counts)
        described = features.without_actions("item", train.item_ids)
        if described is not None:
            more = item_list(described.names, ids=described.ids, actions=np.zeros(len(described.ids), counts.dtype))
            items = items.vstack(more.cast(items.schema))
        people = features.without_actions("user", train.user_ids)
        user_ids = np.concatenate([train.user_ids, *([] if people is None else [people.ids])])
        self.files.write_lists(items, user_ids if model.users.lists_ids else None)
        self.files.write_results(results)

    def _add_to_tensorboard(self, report: EpochReport) -> None:
        """The same figures as events, where that extra is installed."""
        if importlib.util.find_spec("tensorboard") is None:
            return
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self.files.events)) as events:
            for name in ("loss", "validation_auc", "examples_per_second"):
                events.add_scalar(name, getattr(report, name), report.epoch)

    def _refuse_another_run(self) -> None:
        """Resuming with other settings would silently mix two experiments; more epochs are the exception.

        A run that has come to its end says that its schemes are packed. That makes it no other run.
        """
        found = read_json(self.files.config)
        for key in found.keys() | self.config.keys():
            ours, theirs = (_comparable(_settled(key, config.get(key))) for config in (self.config, found))
            if ours != theirs and key != "versions":
                raise ValueError(
                    f"{self.files.path} was started with another {key} ({theirs} instead of {ours}); give another --out"
                )


def _settled(key: str, value: Any) -> Any:
    """The settings of a training, with those that an earlier version did not know as they were then."""
    if key != "train" or not isinstance(value, dict):
        return value
    value = asdict(TrainConfig(loss="bce")) | value
    if value["loss"] == "bce" and value["num_negatives"] is None:
        value["num_negatives"] = TrainConfig().negatives(are_shared=False)
    return value


def _comparable(value: Any) -> Any:
    """A part of a config without what may differ when a run is resumed."""
    if not isinstance(value, dict):
        return value
    left_out = ("epochs", "packed", "described_ids")
    return {key: _comparable(item) for key, item in value.items() if key not in left_out}

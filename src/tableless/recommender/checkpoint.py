"""A trained model as a directory: `config.json`, `model.safetensors`, `metrics.jsonl`, and what resuming needs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, tensor

from ..embedding.arguments import require_kinds
from ..embedding.side_features import SideFeatures
from ..embedding.storage import CONFIG, WEIGHTS, build_scheme, describe_scheme, read_json, read_model, write_model
from ..embedding.tensor_files import load_tensors, save_tensors
from ..embedding.whole_files import replacing, write_text
from .models import BACKBONES, MLP, Recommender
from .training import EpochReport

_METRICS, _STATE, _START, _STAGES = "metrics.jsonl", "resume.safetensors", "start.safetensors", "start.json"
_RESULTS, _EVENTS = "results.json", "tensorboard"
_BESIDE_CONFIG = (WEIGHTS, "items.parquet", "users.parquet", _RESULTS, _METRICS, _STATE, _START, _STAGES)


def describe_recommender(model: Recommender) -> dict[str, Any]:
    """A recommender without its weights, as plain values."""
    name = next(name for name, kind in BACKBONES.items() if kind is type(model))
    description = {
        "backbone": name,
        "users": describe_scheme(model.users),
        "items": describe_scheme(model.items),
        "seed": model.seed,
    }
    if isinstance(model, MLP) and model.item_features is not None:
        description["item_features"] = model.item_features.config
    return description


def build_recommender(description: Mapping[str, Any]) -> Recommender:
    """The recommender that was described, with its starting weights."""
    if description["backbone"] not in BACKBONES:
        raise ValueError(f"no backbone is called {description['backbone']!r}; known are {', '.join(BACKBONES)}")
    users, items, seed = build_scheme(description["users"]), build_scheme(description["items"]), description["seed"]
    if "item_features" in description:
        require_kinds(SideFeatures, description["item_features"])
        return MLP(users=users, items=items, item_features=SideFeatures(**description["item_features"]), seed=seed)
    return BACKBONES[description["backbone"]](users=users, items=items, seed=seed)


def load_run(directory: str | os.PathLike[str]) -> tuple[Recommender, dict[str, Any]]:
    """The model of a run directory, ready to score, and everything its config says."""
    folder = Path(directory)
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"{folder} holds no trained model (there is no {CONFIG}); `tableless train` makes one")
    require_file(folder / WEIGHTS)
    config = read_json(folder / CONFIG)
    model = read_model(folder, config.get("model"), build_recommender)
    if not all(_kind(config, side) in ("integer", "string") for side in ("user", "item")):
        raise ValueError(f"{folder / CONFIG} does not say whether users and items are integers or strings (`kinds`)")
    return model.eval(), config


def require_file(path: Path) -> None:
    """A run has all its files when it has ended, and not before."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path.parent} holds a run that has not come to its end (there is no {path.name}); the command that began "
            "it, with --resume, goes on with it"
        )


def require_free(directory: Path) -> None:
    """Refuse a directory that holds a run, or cannot be written to: now, and not after hours of training."""
    if (directory / CONFIG).exists():
        raise FileExistsError(f"{directory} holds a run already; give another --out, or --resume to go on with it")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def copy_run(source: Path, target: Path) -> None:
    """Copy all files of a run to a directory that holds none. The config, with which the run is there, comes last."""
    if (target / CONFIG).exists():
        raise FileExistsError(f"{target} holds a run already; give another directory, or delete it first")
    require_free(target)
    for name in (*_BESIDE_CONFIG, CONFIG):
        if (source / name).exists():
            with replacing(target / name) as part:
                shutil.copyfile(source / name, part)
    if (source / _EVENTS).exists():
        shutil.copytree(source / _EVENTS, target / _EVENTS, dirs_exist_ok=True)


class RunDirectory:
    """The journal of a training run. Every file appears whole or not at all.

    Of several processes the first writes; all of them read, since all must go on from the same place.
    """

    def __init__(
        self, directory: str | os.PathLike[str], config: Mapping[str, Any], *, resume: bool, writes: bool = True
    ) -> None:
        self.directory = Path(directory)
        self.config = dict(config)
        self._resume = resume
        self._writes = writes
        if not writes:
            return
        if resume and (self.directory / CONFIG).exists():
            self._refuse_another_run()
        else:
            require_free(self.directory)

    def resume(self) -> tuple[list[EpochReport], dict[str, Tensor]]:
        """The epochs that were finished and the state after them."""
        state = self.directory / _STATE
        if not self._resume or not state.exists():
            return [], {}
        tensors = load_tensors(state)
        done = int(tensors.pop("epochs").item())
        lines = (self.directory / _METRICS).read_text(encoding="utf-8").splitlines()
        try:
            return [EpochReport(**json.loads(line)) for line in lines[:done]], tensors
        except (ValueError, TypeError):
            raise ValueError(
                f"{self.directory / _METRICS} is damaged, and {_STATE} cannot be resumed without it; give another --out"
            ) from None

    def start(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]] | None:
        """What training began with (weights, a teacher) and the stages before, if an earlier attempt got that far."""
        path = self.directory / _START
        if not self._resume or not path.exists():
            return None
        stages = self.directory / _STAGES
        return load_tensors(path), read_json(stages)["stages"] if stages.exists() else []

    def keep_start(self, model: Mapping[str, Tensor], stages: Sequence[Mapping[str, Any]]) -> None:
        """Keep what training begins with, and what was done to get there. The weights are written last."""
        if not self._writes:
            return
        write_text(self.directory / CONFIG, json.dumps(self.config, indent=2) + "\n")
        write_text(self.directory / _STAGES, json.dumps({"stages": list(stages)}, indent=2) + "\n")
        save_tensors(model, self.directory / _START)

    def record(self, report: EpochReport, model: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Add an epoch. The state that says how many epochs count is written last."""
        if not self._writes:
            return
        metrics = self.directory / _METRICS
        earlier = metrics.read_text(encoding="utf-8").splitlines()[: report.epoch] if report.epoch else []
        write_text(metrics, "\n".join([*earlier, json.dumps(asdict(report))]) + "\n")
        if report.is_best or not (self.directory / WEIGHTS).exists():
            write_model(self.directory, self.config, model)
        save_tensors({**state, "epochs": tensor(report.epoch + 1)}, self.directory / _STATE)
        _add_to_tensorboard(self.directory, report)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Keep what was measured at the end."""
        write_text(self.directory / _RESULTS, json.dumps(results, indent=2) + "\n")

    def _refuse_another_run(self) -> None:
        """Resuming with other settings would silently mix two experiments; more epochs are the exception."""
        found = read_json(self.directory / CONFIG)
        for key in found.keys() | self.config.keys():
            ours, theirs = _without_epochs(self.config.get(key)), _without_epochs(found.get(key))
            if ours != theirs and key != "versions":
                raise ValueError(
                    f"{self.directory} was started with another {key} ({theirs} instead of {ours}); give another --out"
                )


def _add_to_tensorboard(directory: Path, report: EpochReport) -> None:
    """The same figures as events, where that extra is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(directory / _EVENTS)) as events:
        for name in ("loss", "validation_auc", "examples_per_second"):
            events.add_scalar(name, getattr(report, name), report.epoch)


def _kind(config: Mapping[str, Any], side: str) -> Any:
    kinds = config.get("kinds")
    return kinds.get(side) if isinstance(kinds, dict) else None


def _without_epochs(value: Any) -> Any:
    return {key: item for key, item in value.items() if key != "epochs"} if isinstance(value, dict) else value

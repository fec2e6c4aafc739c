"""Further features: one network for all of them, or a table for each, at equal parameters.

Every kind is trained in both ways. From nothing (`paper`), until it ends by itself; or by way of full tables (`fast`):
these are trained with weight decay, each kind is fitted to them and then tuned by what they expect.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tableless.files.whole import Line
from tableless.recommender.models import GMF
from tableless.recommender.stage_settings import FINE_TUNING_EPOCHS
from tableless.recommender.training import TrainConfig

from .feature_data import FeatureData, Numbers, load_features
from .feature_models import FULL, KINDS, ClickModel, click_model
from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import RECIPES, Recipe
from .writing import paragraphs, table

SEEDS = range(2)
DATA = {"bookcrossing": "Book-Crossing 5-core: author, publisher", "globo": "Globo, a tenth of the users: context"}
BUDGET = 8  # a table of all features, divided by this
_BATCH_SIZE, _NEGATIVES, _LEARNING_RATE, _TUNING_RATE = 8192, 4, 3e-3, 1e-3
_HELD_OUT, _RIVALS = 20_000, 50

Inputs = tuple[dict[str, Tensor], dict[str, Tensor], Tensor]


def perform(settings: Settings) -> dict[str, Any]:
    """Train by the recipe, measure on actions that were held out at random."""
    features = load_features(settings["data"])
    if not settings["further_features"]:
        features = features.ids_only()
    vocabularies, seed = features.vocabularies(), settings["seed"]
    task = _Task(features, settings)
    model = click_model(settings["kind"], settings["budget_share"], vocabularies, seed=seed)
    if settings["recipe"] == "paper":
        stages = [task.train(model, "from nothing")]
    else:
        teacher = click_model(FULL, 1, vocabularies, seed=seed)
        stages = [task.train(teacher, "tables", weight_decay=settings["weight_decay"])]
        if settings["kind"] == FULL:
            model = teacher
        else:
            start = time.perf_counter()
            left = model.fit_to(teacher, vocabularies, seed=seed)
            stages.append({"stage": "fit", "unexplained": left, "seconds": round(time.perf_counter() - start, 2)})
            stages.append(task.train(model, "tuning", teacher=teacher, rate=_TUNING_RATE))
    return {
        "auc": task.auc(model, task.test),
        "validation_auc": task.auc(model, task.validation),
        "epochs": stages[-1]["epochs"],
        "capped": any(stage.get("capped", False) for stage in stages),
        "stages": stages,
        "embedding_parameters": sum(parameter.numel() for parameter in model.embeddings.parameters()),
        "vocabularies": vocabularies,
    }


@dataclass(frozen=True)
class _Task:
    """Data in three parts, the same for everyone, and the one rule for stopping."""

    features: FeatureData
    settings: Settings

    @property
    def _order(self) -> Numbers:
        return np.random.default_rng(0).permutation(len(self.features.items))

    @property
    def _held_out(self) -> int:
        return min(_HELD_OUT, len(self.features.items) // 10)

    @property
    def test(self) -> Numbers:
        return self._order[: self._held_out]

    @property
    def validation(self) -> Numbers:
        return self._order[self._held_out : 2 * self._held_out]

    def train(
        self,
        model: ClickModel,
        stage: str,
        *,
        weight_decay: float = 0.0,
        teacher: ClickModel | None = None,
        rate: float = _LEARNING_RATE,
    ) -> dict[str, Any]:
        """Train until the validation AUC has not risen for `patience` epochs, and keep the best; says how it went.

        With a teacher it is the last stage: a fixed number of epochs on what the teacher expects, and the weights that
        it starts with compete, too.
        """
        epochs = FINE_TUNING_EPOCHS if teacher else self.settings["epochs"]
        patience = epochs if teacher else self.settings["patience"]
        start = time.perf_counter()
        random = np.random.default_rng(self.settings["seed"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=weight_decay, fused=True)
        actions = self._order[2 * self._held_out :]
        aucs = [self.auc(model, self.validation)] if teacher else []
        best = _weights(model)
        done = since = 0
        while done < epochs and since < patience:
            model.train()
            shuffled = random.permutation(actions)
            for first in range(0, len(shuffled), _BATCH_SIZE):
                inputs = _inputs(self.features, shuffled[first : first + _BATCH_SIZE], _NEGATIVES, random)
                scores = model(*inputs)
                optimizer.zero_grad()
                torch.autograd.backward(F.binary_cross_entropy_with_logits(scores, _targets(inputs, scores, teacher)))
                optimizer.step()
            done += 1
            aucs.append(self.auc(model, self.validation))
            since = len(aucs) - 1 - int(np.argmax(aucs))
            if since == 0:
                best = _weights(model)
        model.load_state_dict(best)
        used = {"learning_rate": rate, "weight_decay": weight_decay, "batch_size": _BATCH_SIZE, "patience": patience}
        return {
            "stage": stage,
            "epochs": done,
            "capped": teacher is None and since < patience,
            "seconds": round(time.perf_counter() - start, 2),
            "settings": used | {"epochs": epochs, "num_negatives": _NEGATIVES},
        }

    @torch.no_grad()
    def auc(self, model: ClickModel, actions: Numbers) -> float:
        """Against items drawn at random, the same for everyone."""
        model.eval()
        scores = model(*_inputs(self.features, actions, _RIVALS, np.random.default_rng(1)))
        own, others = scores[:, :1], scores[:, 1:]
        return float(((others < own).float() + (others == own).float() / 2).mean())


def _inputs(features: FeatureData, actions: Numbers, num_others: int, random: np.random.Generator) -> Inputs:
    """What a click model is given: actions, and for each the item chosen and others drawn from all items."""
    num_items = len(features.of_items["item"])
    candidates = np.concatenate(
        [features.items[actions, None], random.integers(0, num_items, (len(actions), num_others))], axis=1
    )
    distinct, item = np.unique(candidates, return_inverse=True)
    of_actions = {name: torch.from_numpy(values[actions]) for name, values in features.of_actions.items()}
    of_items = {name: torch.from_numpy(values[distinct]) for name, values in features.of_items.items()}
    return of_actions, of_items, torch.from_numpy(item.reshape(candidates.shape))


@torch.no_grad()
def _targets(inputs: Inputs, scores: Tensor, teacher: ClickModel | None) -> Tensor:
    """What happened: the first candidate was chosen; or, with a teacher, how likely it thinks each of them."""
    if teacher is not None:
        expected: Tensor = torch.sigmoid(teacher.eval()(*inputs))
        return expected
    chosen = torch.zeros_like(scores)
    chosen[:, 0] = 1
    return chosen


def _weights(model: ClickModel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def _runs(data: str, kind: str, recipe: Recipe, *, further_features: bool) -> list[Settings]:
    rule = TrainConfig()  # the library's own, one for everything
    what: Settings = {"data": data, "kind": kind, "further_features": further_features, "recipe": recipe}
    what |= {
        "budget_share": 1 if kind == FULL else BUDGET,
        "weight_decay": GMF.table_decay if recipe == "fast" else 0.0,
    }
    what |= {"epochs": rule.epochs, "patience": rule.patience}
    return [{**what, "seed": seed} for seed in SEEDS]


EXPERIMENT = Experiment(
    "features",
    [
        run
        for recipe in RECIPES
        for kind in KINDS
        for also in (False, True)
        for data in DATA
        for run in _runs(data, kind, recipe, further_features=also)
    ],
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """AUC with and without the further features, for each kind of embedding and each recipe."""
    finished = Finished(lines)
    parts = [
        "Not in the paper. A click model of our own (GMF over the sums of each side's vectors); AUC against "
        f"{_RIVALS} random items, on actions held out at random. All but `full` have 1/{BUDGET} of the tables of all "
        "features together; in `one joint network` every feature shares the same weights. “As published” means "
        "trained from nothing here.",
    ]
    for data, name in DATA.items():
        for recipe, method in RECIPES.items():
            rows = []
            for kind in KINDS:
                ids, more = (_runs(data, kind, recipe, further_features=also) for also in (False, True))
                gain = str(finished.difference(more, ids) or NOT_RUN)
                parameters = finished.plain(more[:1], "embedding_parameters")
                rows.append([kind, finished.cell(ids), finished.cell(more), gain, parameters])
            headings = [f"{name}; {method}", "ids alone: AUC, %", "with further features: AUC, %", "gain", "parameters"]
            parts.append(table(headings, rows))
    return paragraphs(parts)


if __name__ == "__main__":
    main(EXPERIMENT)

"""Further features: one network for all of them, or a table for each, at equal parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tableless import SCHEMES
from tableless.embedding.joint import JointEmbedding
from tableless.recommender.lines import Line

from .feature_data import FeatureData, Numbers, load_features
from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .writing import table

SEEDS = range(2)
DATA = {"bookcrossing": "Book-Crossing 5-core: author, publisher", "globo": "Globo, a tenth of the users: context"}
FULL, HASHED, LOW_RANK, JOINT = "full", "hashing-trick", "low-rank", "one joint network"
# Epochs at most; a table's cost little and are needed, the network's cost minutes and are fewer.
KINDS = {FULL: 40, HASHED: 40, LOW_RANK: 40, JOINT: 8}
BUDGET = 8  # a table of all features, divided by this
EMBEDDING_DIM = 32
# Values of a device or a region: a table of them is small, and a share of it would be no table at all.
_FEW = 1000
_BATCH_SIZE, _NEGATIVES, _LEARNING_RATE, _PATIENCE = 8192, 4, 3e-3, 5
_HELD_OUT, _RIVALS = 20_000, 50


class SeparateTables(nn.Module):
    """A table for each feature, all of one kind; the few values of small features have rows of their own."""

    def __init__(self, kind: str, budget: int, vocabularies: Mapping[str, int], seed: int) -> None:
        super().__init__()
        large = sum(size for size in vocabularies.values() if size > _FEW)
        left = budget - EMBEDDING_DIM * sum(size for size in vocabularies.values() if size <= _FEW)
        self.tables = nn.ModuleDict()
        for number, (name, size) in enumerate(vocabularies.items()):
            is_small = kind == FULL or size <= _FEW
            allowed = size * EMBEDDING_DIM if is_small else left * size // large
            self.tables[name] = SCHEMES[FULL if is_small else kind].from_budget(
                allowed, embedding_dim=EMBEDDING_DIM, vocab_size=size, seed=100 * seed + number
            )

    def forward(self, ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{feature: int64 [...]} -> {feature: float32 [..., dim]}."""
        return {name: self.tables[name](own) for name, own in ids.items()}


class ClickModel(nn.Module):
    """GMF over sums: the vectors of the user's side added up, times those of the item's side."""

    def __init__(self, embeddings: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.weight = nn.Parameter(torch.ones(EMBEDDING_DIM))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, of_actions: Mapping[str, Tensor], of_items: Mapping[str, Tensor], item: Tensor) -> Tensor:
        """Features [batch], features of distinct items [m], and which of them [batch, candidates] -> scores."""
        distinct, places = {}, {}
        for name, values in {**of_actions, **of_items}.items():  # batch norm and arithmetic: each value once
            distinct[name], places[name] = torch.unique(values, return_inverse=True)
        vectors = self.embeddings(distinct)
        users = torch.stack([vectors[name][places[name]] for name in of_actions]).sum(0) * self.weight
        items = torch.stack([vectors[name][places[name]] for name in of_items]).sum(0)
        return torch.bmm(items[item], users.unsqueeze(-1)).squeeze(-1) + self.bias


def perform(settings: Settings) -> dict[str, Any]:
    """Train until the validation AUC falls, measure on actions that were held out at random."""
    features = load_features(settings["data"])
    if not settings["further_features"]:
        features = features.ids_only()
    vocabularies = features.vocabularies()
    seed = settings["seed"]
    model = ClickModel(_embeddings(settings["kind"], vocabularies, seed))
    random = np.random.default_rng(seed)
    order = np.random.default_rng(0).permutation(len(features.items))  # the same parts for everyone
    held_out = min(_HELD_OUT, len(order) // 10)
    test, validation, train = order[:held_out], order[held_out : 2 * held_out], order[2 * held_out :]
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE, fused=True)
    aucs, best = [], {}
    for _ in range(settings["epochs"]):
        model.train()
        shuffled = random.permutation(train)
        for start in range(0, len(shuffled), _BATCH_SIZE):
            scores = _score(model, features, shuffled[start : start + _BATCH_SIZE], _NEGATIVES, random)
            chosen = torch.zeros_like(scores)
            chosen[:, 0] = 1
            optimizer.zero_grad()
            torch.autograd.backward(F.binary_cross_entropy_with_logits(scores, chosen))
            optimizer.step()
        aucs.append(_auc(model, features, validation))
        if aucs[-1] == max(aucs):
            best = {name: value.clone() for name, value in model.state_dict().items()}
        if len(aucs) - 1 - int(np.argmax(aucs)) >= _PATIENCE:
            break
    model.load_state_dict(best)
    return {
        "auc": _auc(model, features, test),
        "validation_auc": max(aucs),
        "epochs": len(aucs),
        "embedding_parameters": sum(parameter.numel() for parameter in model.embeddings.parameters()),
        "vocabularies": vocabularies,
    }


def _embeddings(kind: str, vocabularies: dict[str, int], seed: int) -> nn.Module:
    budget = EMBEDDING_DIM * sum(vocabularies.values()) // BUDGET
    if kind != JOINT:
        return SeparateTables(kind, budget, vocabularies, seed)
    sizes: dict[str, Any] = {"embedding_dim": EMBEDDING_DIM, "depth": 4, "num_hashes": 128}
    return JointEmbedding.from_budget(budget, features=vocabularies, seed=seed, **sizes)


def _score(
    model: ClickModel, features: FeatureData, actions: Numbers, num_others: int, random: np.random.Generator
) -> Tensor:
    """Scores [actions, 1 + num_others]: of the item chosen, and of others drawn from all items."""
    num_items = len(features.of_items["item"])
    candidates = np.concatenate(
        [features.items[actions, None], random.integers(0, num_items, (len(actions), num_others))], axis=1
    )
    distinct, item = np.unique(candidates, return_inverse=True)
    of_actions = {name: torch.from_numpy(values[actions]) for name, values in features.of_actions.items()}
    of_items = {name: torch.from_numpy(values[distinct]) for name, values in features.of_items.items()}
    return model(of_actions, of_items, torch.from_numpy(item.reshape(candidates.shape)))


@torch.no_grad()
def _auc(model: ClickModel, features: FeatureData, actions: Numbers) -> float:
    model.eval()
    scores = _score(model, features, actions, _RIVALS, np.random.default_rng(1))
    own, others = scores[:, :1], scores[:, 1:]
    return float(((others < own).float() + (others == own).float() / 2).mean())


def _runs(data: str, kind: str, *, further_features: bool) -> list[Settings]:
    what = {"data": data, "kind": kind, "further_features": further_features, "epochs": KINDS[kind]}
    return [{**what, "seed": seed} for seed in SEEDS]


EXPERIMENT = Experiment(
    "features",
    list(
        chain.from_iterable(
            _runs(data, kind, further_features=also) for kind in KINDS for also in (False, True) for data in DATA
        )
    ),
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """AUC with and without the further features, for each kind of embedding."""
    finished = Finished(lines)
    parts = [
        "Not in the paper. A click model of our own (GMF over the sums of each side's vectors), trained end to end; "
        f"AUC against {_RIVALS} random items, on actions held out at random. All but `full` have 1/{BUDGET} of the "
        "tables of all features together; in `one joint network` every feature shares the same weights.",
    ]
    for data, name in DATA.items():
        rows = []
        for kind in KINDS:
            ids, more = (_runs(data, kind, further_features=also) for also in (False, True))
            rows.append(
                [
                    kind,
                    finished.cell(ids),
                    finished.cell(more),
                    str(finished.difference(more, ids) or NOT_RUN),
                    finished.cell(more[:1], "embedding_parameters", scale=1, digits=0),
                ]
            )
        parts.append(table([name, "ids alone", "with further features", "gain", "parameters"], rows))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main(EXPERIMENT)

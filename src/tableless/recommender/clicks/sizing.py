"""Which scheme each column gets, and how much of the budget.

Columns with few values stay tables, and the budget pays for them first. What is left is shared by the others in
proportion to how many values they have, or all of it goes to one joint network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...data.clicks.columns import ClickColumn
from ...data.clicks.split import ClickSplit, Known
from ...embedding.budget import Allowance, BudgetTooSmall, in_units, resolve_budget
from ...embedding.hashing import derive_seed
from ...embedding.joint import JointEmbedding
from ...embedding.scheme import EmbeddingScheme
from ...embedding.schemes import SCHEMES
from ...embedding.tables import FullEmbedding
from ...hints import require_known_name
from .backbones import find_click_backbone
from .click_model import ClickModel
from .column_vectors import BucketVectors, ColumnVectors, NumberVectors, ValueVectors

JOINT = "joint"
"""The name of one network for all large columns, beside the names of schemes."""
FEW_VALUES = 1000
"""A column with at most so many values stays a table."""
_NUM_BUCKETS = 32
# Of coded rows. New values come in every log of clicks; with 8 bits all but one in 256 of them are noticed.
_OPTIONS: dict[str, dict[str, Any]] = {"coded": {"check_bits": 8}}


@dataclass(frozen=True)
class ClickModelConfig:
    """Which click model, how large, and how its columns get their vectors."""

    backbone: str = "deepfm"
    scheme: str = "dhe"  # of all columns with many values, or "joint"
    budget: str = "1/16"
    embedding_dim: int = 32
    column_schemes: Mapping[str, str] = field(default_factory=dict)  # "coded", or with bytes: "coded:64KB"

    def __post_init__(self) -> None:
        find_click_backbone(self.backbone)
        require_known_name("scheme", self.scheme, (*SCHEMES, JOINT))
        for own in self.column_schemes.values():
            require_known_name("scheme", own.partition(":")[0], SCHEMES)
        if resolve_budget(self.budget, embedding_dim=self.embedding_dim, vocab_size=2**40).unit != "bytes":
            raise ValueError(
                f"a budget of {self.budget!r} counts parameters; that of a click model is memory ('64MB', '8B/id') or "
                "a share of the bytes of all tables ('1/16')"
            )

    def settings(self) -> dict[str, Any]:
        """Plain values, for the config of a run."""
        return {"scheme": self.scheme, "budget": self.budget, "column_schemes": dict(self.column_schemes)}


def full_tables(split: ClickSplit, config: ClickModelConfig, *, seed: int) -> ClickModel:
    """The model in which every column has a table: the teacher of all others."""
    return _model(
        split,
        config,
        {name: _table(known, config, _seed(seed, name)) for name, known in split.known.items()},
        seed=seed,
    )


def sized_model(split: ClickSplit, config: ClickModelConfig, *, seed: int) -> ClickModel:
    """The model of the config, as large as the budget allows."""
    known = split.known
    _require_columns(config, known)
    if config.scheme == "full" and not config.column_schemes:
        return full_tables(split, config, seed=seed)
    chosen = {name: config.column_schemes.get(name, _usual(config, known[name])) for name in known}
    total = resolve_budget(config.budget, embedding_dim=config.embedding_dim, vocab_size=_count(known.values()))
    schemes: dict[str, EmbeddingScheme] = {}
    left, sharing = total.without(_bytes_of_numbers(split, config)), dict[str, Known]()
    for name, own in known.items():
        scheme, _, budget = chosen[name].partition(":")
        if scheme == "full":
            schemes[name] = _table(own, config, _seed(seed, name))
        elif budget:
            schemes[name] = _sized(scheme, resolve_budget(budget, **_sizes(own, config)), own, config, name, seed)
        else:
            sharing[name] = own
            continue
        left = left.without(schemes[name].num_bytes + _checks(schemes[name], own))
    for name, own in sharing.items():
        if chosen[name] != JOINT:
            share = left.share(_count([own]), _count(sharing.values()))
            schemes[name] = _sized(chosen[name], _positive(share, total, config), own, config, name, seed)
    in_joint = {name: own for name, own in sharing.items() if chosen[name] == JOINT}
    joint = None
    if in_joint:
        share = _positive(left.share(_count(in_joint.values()), _count(sharing.values())), total, config)
        features = {name: _count([own]) for name, own in in_joint.items()}
        joint = JointEmbedding.from_budget(share, features=features, embedding_dim=config.embedding_dim, seed=seed)
    return _model(split, config, schemes, joint=joint, seed=seed)


def _model(
    split: ClickSplit,
    config: ClickModelConfig,
    schemes: Mapping[str, EmbeddingScheme],
    *,
    seed: int,
    joint: JointEmbedding | None = None,
) -> ClickModel:
    columns = split.table.columns
    vectors: dict[str, ColumnVectors] = {}
    for place, column in enumerate(columns):
        if column.is_number:
            vectors[column.name] = _number_vectors(column, split, config, seed=1000 * seed + place)
        elif column.name in schemes:
            known = split.known[column.name]
            own = ValueVectors(schemes[column.name], num_values=len(known.ids), is_list=column.is_list)
            if own.known is not None and len(known.ids):
                own.known.build(torch.from_numpy(known.ids))
            schemes[column.name].expect_training_from_nothing()  # what is trained from nothing is meant to be
            vectors[column.name] = own
    if joint is not None and joint.network is not None:
        joint.network.expect_training_from_nothing()
    is_number = [column.is_number for column in columns]
    backbone = find_click_backbone(config.backbone)(len(columns), config.embedding_dim, is_number=is_number, seed=seed)
    return ClickModel(columns, vectors, backbone=backbone, joint=joint)


def _bytes_of_numbers(split: ClickSplit, config: ClickModelConfig) -> int:
    """What columns of numbers take: as small tables, they are paid for first."""
    return sum(_number_vectors(own, split, config, seed=0).num_bytes for own in split.table.columns if own.is_number)


def _number_vectors(column: ClickColumn, split: ClickSplit, config: ClickModelConfig, *, seed: int) -> ColumnVectors:
    values = split.numbers[column.name]
    if column.kind == "number":
        mean, std = (float(values.mean()), float(values.std())) if len(values) else (0.0, 1.0)
        return NumberVectors(config.embedding_dim, mean=mean, std=std or 1.0, seed=seed)
    edges = np.unique(np.quantile(values, np.arange(1, _NUM_BUCKETS) / _NUM_BUCKETS)) if len(values) else np.zeros(0)
    own = BucketVectors(config.embedding_dim, num_edges=len(edges), seed=seed)
    own.edges.copy_(torch.from_numpy(edges.astype(np.float32)))
    return own


def _usual(config: ClickModelConfig, known: Known) -> str:
    return "full" if len(known.ids) <= FEW_VALUES else config.scheme


def _sizes(known: Known, config: ClickModelConfig) -> dict[str, int]:
    return {"embedding_dim": config.embedding_dim, "vocab_size": _count([known])}


def _count(known: Any) -> int:
    """Rows of the tables: one for each known value, and one for all others."""
    return sum(len(own.ids) + 1 for own in known)


def _seed(seed: int, column: str) -> int:
    """Each column has its own: else all tables would start with the same rows."""
    return derive_seed(seed, column) % 2**31


def _table(known: Known, config: ClickModelConfig, seed: int) -> FullEmbedding:
    return FullEmbedding(**_sizes(known, config), seed=seed)


def _checks(scheme: EmbeddingScheme, known: Known) -> int:
    return 0 if scheme.open_vocabulary else len(known.ids)


def _sized(
    name: str, allowed: Allowance, known: Known, config: ClickModelConfig, column: str, seed: int
) -> EmbeddingScheme:
    """A scheme within the allowance; the checks of a closed one are paid for as well."""
    allowed = allowed if SCHEMES[name].open_vocabulary else allowed.without(len(known.ids))
    if name == "full":
        return _table(known, config, _seed(seed, column))
    try:
        return SCHEMES[name].from_budget(
            allowed, **_sizes(known, config), seed=_seed(seed, column), **_OPTIONS.get(name, {})
        )
    except BudgetTooSmall as error:
        raise ValueError(
            f"of a budget of {config.budget}, {in_units(max(0, allowed.amount))} are left for column {column!r}, "
            f"and {name} takes {in_units(error.smallest)} at least; give a larger budget, or another "
            f"scheme to that column (column_schemes='{column}=coded')"
        ) from None


def _positive(left: Allowance, total: Allowance, config: ClickModelConfig) -> Allowance:
    if left.amount <= 0:
        raise ValueError(
            f"a budget of {config.budget} ({in_units(total.amount)}) is too small: numbers, and the tables of columns "
            f"with at most {FEW_VALUES:,} values, take {in_units(total.amount - left.amount)} or more of it; give a "
            "larger budget"
        )
    return left


def _require_columns(config: ClickModelConfig, known: Mapping[str, Known]) -> None:
    for name in config.column_schemes:
        require_known_name("column of ids", name, known)

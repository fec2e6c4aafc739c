"""Features in a training: in the code of a network, beside the hashes, and as the vectors of ids that are new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.config import FeatureConfig
from ..data.features.reading import read_features
from ..data.features.table import FeatureColumns, FeatureTable
from ..data.interactions import Kind
from ..data.splits import Split
from ..embedding.described_ids import WithDescribedIds
from ..embedding.scheme import EmbeddingScheme
from ..embedding.side_features import SideFeatures
from .models import Recommender
from .teachers import TableSide, known_ids, row_weights

if TYPE_CHECKING:
    from .run_directory import Side

SIDES: dict[Side, TableSide] = {"user": "users", "item": "items"}
IN_ENCODING = ("dhe",)
"""Schemes whose code can hold features."""


@dataclass(frozen=True)
class Features:
    """What is known of users and items beside their actions, and what it is used for."""

    tables: Mapping[Side, FeatureTable] = field(default_factory=dict)
    use: str = FeatureConfig.features

    def are_encoded(self, scheme: str) -> bool:
        """Do features enter the code of this scheme? With "auto" they do where they can."""
        if self.use == "encoding" and scheme not in IN_ENCODING:
            raise ValueError(
                f"features='encoding' needs a scheme with a code, such as {IN_ENCODING[0]!r}, and this is {scheme!r}; "
                "features='new-ids' uses them for the vectors of new ids alone"
            )
        return self.use != "new-ids" and scheme in IN_ENCODING

    def options_for(self, side: Side, scheme: str) -> dict[str, Any]:
        """Arguments for a scheme whose code has features of this side. Their rows come later: a budget is for weights.

        What is known of an id is data of the caller, like its title. The rows count in `num_bytes` all the same.
        """
        if side not in self.tables or not self.are_encoded(scheme):
            return {}
        return {"side_features": SideFeatures(self.tables[side].columns.width, row_bits=8)}

    def fill(self, model: Recommender, split: Split) -> None:
        """Give the code the rows of the ids that training knows."""
        for side, table in self.tables.items():
            own = getattr(getattr(model, SIDES[side]), "side_features", None)
            if own is not None:
                ids = known_ids(split, SIDES[side])
                there, rows = table.of(ids)
                own.add(torch.from_numpy(ids[there]), torch.from_numpy(rows))

    def describe_new_ids(
        self, model: Recommender, split: Split, on_note: Callable[[str], None] = lambda text: None
    ) -> dict[str, Any]:
        """Put a trained model's schemes into such as answer for new ids by their features.

        Described are all ids of the tables that training does not know: those of the test period, and those that occur
        in no action. Returns results, as plain values.
        """
        results: dict[str, Any] = {}
        for side, table in self.tables.items():
            scheme: EmbeddingScheme = getattr(model, SIDES[side])
            known = known_ids(split, SIDES[side])
            there, rows = table.of(known)
            listed = None if scheme.open_vocabulary else torch.from_numpy(np.array(known))
            described = WithDescribedIds(scheme, num_features=table.columns.width, known_ids=listed)
            described = described.to(next(scheme.parameters()).device).eval()
            weights = row_weights(split, SIDES[side])[torch.from_numpy(there)]
            unexplained = described.fit_map(
                torch.from_numpy(known[there]), torch.from_numpy(rows), weights=weights
            ) if there.any() else 1.0  # fmt: skip
            new = table.without(known)
            if len(new.ids):
                described.add(torch.from_numpy(new.ids), torch.from_numpy(new.rows))
            setattr(model, SIDES[side], described)
            results[side] = {
                "columns": table.columns.width,
                "with_features": int(there.sum()),
                "described": len(new.ids),
            }
            results[side]["unexplained"] = unexplained
            on_note(
                f"{SIDES[side]}: features explain {1 - unexplained:.0%} of the variance of vectors left out; "
                f"{len(new.ids):,} {SIDES[side]} are known by features alone"
            )
        return results

    def without_actions(self, side: Side, ids: NDArray[np.int64]) -> FeatureTable | None:
        """The rows of ids that occur in none of the actions, which have these `ids`."""
        return self.tables[side].without(ids) if side in self.tables else None

    def describe(self) -> dict[str, Any]:
        """What a run keeps, so that a new row can be encoded later."""
        return {"use": self.use, **{side: table.columns.describe() for side, table in self.tables.items()}}


def kinds_of(split: Split) -> dict[Side, Kind]:
    """What the raw ids of each side are."""
    return {"user": split.train.user_kind, "item": split.train.item_kind}


def load_features(config: FeatureConfig, split: Split, note: Callable[[str], None] = lambda text: None) -> Features:
    """Read the files that the config names; ids are of the kind that the interactions have."""
    kinds = kinds_of(split)
    sources: dict[Side, str | None] = {"user": config.user_features, "item": config.item_features}
    tables = {
        side: read_features(source, side=side, kind=kinds[side], note=note)
        for side, source in sources.items()
        if source is not None
    }
    for side, table in tables.items():
        if not table.of(known_ids(split, SIDES[side]))[0].any():
            raise ValueError(
                f"no {side} of the interactions has a row in the {side} features; are the ids of {table.names[0]!r} "
                f"and the like those of the column that the interactions have?"
            )
    return Features(tables, config.features)


def columns_of(config: Mapping[str, Any], side: Side) -> FeatureColumns:
    """The columns of a run's features. A run without them is refused."""
    features = config.get("features")
    if not isinstance(features, Mapping) or side not in features:
        raise ValueError(
            f"this run was trained without {side} features, so it can't tell what a new {side} is like; train with "
            f"--{side}-features (in Python: {side}_features=…)"
        )
    return FeatureColumns.from_description(features[side])

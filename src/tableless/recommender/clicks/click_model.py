"""A click model: the vectors of all columns, and a backbone that makes a logit of them. Also as plain values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...data.clicks.columns import ClickColumn
from ...embedding.joint import JointEmbedding
from ...files.scheme_directory import require_kinds
from .backbones import CLICK_BACKBONES, ClickBackbone, find_click_backbone
from .column_vectors import ColumnVectors, ValueVectors, build_column, mean_of_lists


class ClickModel(nn.Module):
    """How likely is a click, given the columns of a row?

    Every column has vectors of its own, or shares one joint network with others. The model takes raw ids (`to_ids` of
    the raw values), lists as a matrix that is filled up with the id of the empty string, and numbers with NaN where
    they are missing.

    Args:
        columns: The columns, in their order.
        vectors: How each column gets its vectors; those that are not named here are in `joint`.
        backbone: What is made of the vectors.
        joint: One network for several columns.
    """

    def __init__(
        self,
        columns: tuple[ClickColumn, ...],
        vectors: Mapping[str, ColumnVectors],
        *,
        backbone: ClickBackbone,
        joint: JointEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.columns = columns
        self.own_names = [column.name for column in columns if column.name in vectors]
        self.joint_names = [column.name for column in columns if column.name not in vectors]
        # A list, since columns may have names that torch forbids for children of a module, such as "type" or "a.b".
        self.own = nn.ModuleList(vectors[name] for name in self.own_names)
        self.joint = joint
        self.backbone = backbone

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """{column: values [batch], lists [batch, length]} -> logits [batch]."""
        return self.backbone(self.vectors(inputs))

    def vectors(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The vectors of all columns: float [batch, columns, dim]."""
        found = {name: self.of_column(name)(inputs[name]) for name in self.own_names}
        if self.joint is not None:
            together = self.joint({name: inputs[name] for name in self.joint_names})
            lists = {column.name for column in self.columns if column.is_list}
            for name, own in together.items():
                found[name] = mean_of_lists(own, inputs[name]) if name in lists else own
        return torch.stack([found[column.name] for column in self.columns], dim=-2)

    def of_column(self, name: str) -> ColumnVectors:
        """What makes the vectors of a column, if it is not in the joint network."""
        own = self.own[self.own_names.index(name)]
        assert isinstance(own, ColumnVectors)
        return own

    def value_columns(self) -> dict[str, ValueVectors]:
        """The columns whose vectors a scheme of their own makes."""
        pairs = zip(self.own_names, self.own, strict=True)
        return {name: own for name, own in pairs if isinstance(own, ValueVectors)}

    def pack(self) -> None:
        """Bring all schemes into the form that is stored."""
        for own in self.value_columns().values():
            own.scheme.pack()
        if self.joint is not None:
            self.joint.pack()

    def unpack(self) -> None:
        """Bring all schemes into the form that is trained."""
        for own in self.value_columns().values():
            own.scheme.unpack()
        if self.joint is not None:
            self.joint.unpack()

    def stored(self) -> ClickModel:
        """A packed copy."""
        copied = copy.deepcopy(self)
        copied.pack()
        return copied

    def sizes(self, num_values: int) -> dict[str, Any]:
        """How large the model is, as plain values. `num_values` are the known values of all columns."""
        parts: dict[str, dict[str, int]] = {name: self.of_column(name).bytes_by_part() for name in self.own_names}
        if self.joint is not None and self.joint.network is not None:
            parts["joint"] = self.joint.network.bytes_by_part()
        total = sum(sum(own.values()) for own in parts.values())
        return {
            "bytes": total,
            "bytes_per_value": round(total / max(1, num_values), 3),
            "bytes_by_part": parts,
            "backbone_parameters": self.backbone.num_parameters,
        }


def describe_click_model(model: ClickModel) -> dict[str, Any]:
    """A click model without its weights, as plain values."""
    return {
        "backbone": next(name for name, kind in CLICK_BACKBONES.items() if type(model.backbone) is kind),
        "embedding_dim": model.backbone.dim,
        "seed": model.backbone.seed,
        # By number: a mapping, because lists are not looked into for numbers that are too large.
        "columns": {
            str(place): {
                **column.settings(),
                "vectors": "joint" if column.name in model.joint_names else model.of_column(column.name).config,
            }
            for place, column in enumerate(model.columns)
        },
        "joint": None if model.joint is None else model.joint.config,
    }


def build_click_model(description: Mapping[str, Any]) -> ClickModel:
    """The click model that was described, with its starting weights."""
    columns: list[ClickColumn] = []
    vectors: dict[str, ColumnVectors] = {}
    for described in description["columns"].values():
        own = dict(described)
        how = own.pop("vectors")
        columns.append(ClickColumn.from_settings(own))
        if how != "joint":
            vectors[columns[-1].name] = build_column(how)
    joint = description["joint"]
    if joint is not None:
        require_kinds(JointEmbedding, joint)
    backbone = find_click_backbone(description["backbone"])
    is_number = [column.is_number for column in columns]
    return ClickModel(
        tuple(columns),
        vectors,
        backbone=backbone(len(columns), description["embedding_dim"], is_number=is_number, seed=description["seed"]),
        joint=None if joint is None else JointEmbedding(**joint),
    )

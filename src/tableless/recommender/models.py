"""The backbones by name, and a recommender as plain values: what `config.json` says of a model, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..embedding.choices import require_known_name
from ..files.scheme_directory import build_scheme, describe_scheme
from .backbone import Recommender
from .gmf import GMF
from .mlp import MLP

__all__ = ["BACKBONES", "GMF", "MLP", "Recommender", "build_recommender", "describe_recommender", "find_backbone"]

BACKBONES: dict[str, type[Recommender]] = {"gmf": GMF, "mlp": MLP}
"""Every backbone by the name it has in flags and files. A new one is a class and a line here."""


def find_backbone(name: str) -> type[Recommender]:
    """The backbone of this name."""
    require_known_name("backbone", name, BACKBONES)
    return BACKBONES[name]


def describe_recommender(model: Recommender) -> dict[str, Any]:
    """A recommender without its weights, as plain values."""
    return {
        "backbone": next(name for name, kind in BACKBONES.items() if kind is type(model)),
        "users": describe_scheme(model.users),
        "items": describe_scheme(model.items),
        "seed": model.seed,
        **model.extra_config,
    }


def build_recommender(description: Mapping[str, Any]) -> Recommender:
    """The recommender that was described, with its starting weights."""
    backbone = find_backbone(description["backbone"])
    users, items = build_scheme(description["users"]), build_scheme(description["items"])
    return backbone.from_config(description, users=users, items=items, seed=description["seed"])

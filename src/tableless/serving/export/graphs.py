"""A trained recommender as modules to export, and their linear layers rounded to weights of one byte each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ...embedding.inference.int8 import round_weights
from ...embedding.inference.packed_layer import PackedLinear
from ...recommender.models import Recommender
from ...recommender.run_directory import Side


@dataclass(frozen=True)
class Exportable:
    """One module to export: int64 [batch] in, float32 [batch, *shape] out."""

    name: str
    module: nn.Module
    original: Callable[..., Tensor]  # what it must agree with
    inputs: dict[str, Side]  # by name, whose ids they are
    output: str
    shape: tuple[int, ...]


def exportables(model: Recommender, item_ids: Tensor | None = None) -> list[Exportable]:
    """Both embeddings, then the recommender. The modules share one copy of the model, which itself is not changed.

    `item_ids` [rows] says which id each row has. A model with item features needs it if its items go in as rows.
    """
    user_rows, item_rows = model.users.num_known_ids, model.items.num_known_ids
    own = copy.deepcopy(model).requires_grad_(False).eval()
    own.add_module("users", own.users.exported())
    own.add_module("items", own.items.exported())
    users, items = ExportedEmbedding(own.users, user_rows), ExportedEmbedding(own.items, item_rows)
    pairs = ExportedRecommender(own, user_rows, item_rows, item_ids)
    vector = (model.users.embedding_dim,)

    def scores(users: Tensor, items: Tensor) -> Tensor:
        candidates = items.unsqueeze(-1)
        return model(users, candidates, None if item_ids is None else item_ids[candidates]).squeeze(-1)

    return [
        Exportable("user_embedding", users, model.users, {"ids": "user"}, "vectors", vector),
        Exportable("item_embedding", items, model.items, {"ids": "item"}, "vectors", vector),
        Exportable("recommender", pairs, scores, {"user_ids": "user", "item_ids": "item"}, "scores", ()),
    ]


class ExportedEmbedding(nn.Module):
    """Ids to vectors. A closed scheme takes the rows 0 to `num_rows` - 1 as ids; any other row gives NaN."""

    def __init__(self, scheme: nn.Module, num_rows: int | None) -> None:
        super().__init__()
        self.scheme = scheme
        self.num_rows = num_rows

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        known, rows = _known(ids, self.num_rows)
        vectors = self.scheme(rows)
        return vectors if known is None else torch.where(known.unsqueeze(-1), vectors, torch.nan)


class ExportedRecommender(nn.Module):
    """Pairs to scores. A pair with a row that a closed scheme does not have gives NaN.

    Features are found by id. If the items go in as rows, `item_ids` [rows] says which id each row has.
    """

    item_ids: Tensor | None

    def __init__(
        self, model: Recommender, user_rows: int | None, item_rows: int | None, item_ids: Tensor | None
    ) -> None:
        super().__init__()
        self.model = model
        self.user_rows = user_rows
        self.item_rows = item_rows
        self.register_buffer("item_ids", item_ids)

    def forward(self, user_ids: Tensor, item_ids: Tensor) -> Tensor:
        """Int64 [n] and [n] -> float32 [n]."""
        known_users, users = _known(user_ids, self.user_rows)
        known_items, items = _known(item_ids, self.item_rows)
        ids = items if self.item_ids is None else self.item_ids[items]
        vectors = self.model.item_vectors(items, ids).unsqueeze(-2)  # one candidate per user
        scores = self.model.score(self.model.user_vectors(users), vectors).squeeze(-1)
        # NaN is put into the scores and not into the vectors, since runtimes differ in what activations make of it.
        for known in (known_users, known_items):
            scores = scores if known is None else torch.where(known, scores, torch.nan)
        return scores


def _known(ids: Tensor, rows: int | None) -> tuple[Tensor | None, Tensor]:
    """Which ids have a row (None: all of them), and ids with row 0 in place of the others."""
    if rows is None:
        return None, ids
    known = (ids >= 0) & (ids < rows)
    return known, torch.where(known, ids, 0)


@torch.no_grad()
def round_linear_layers(module: nn.Module, *sample_inputs: Tensor) -> None:
    """Put an `Int8Linear` in the place of every linear layer, rounded for the inputs it gets when the sample is run.

    Some layers are never called, because their weights are used directly, as the MLP's are. Their inputs count as
    unrelated, and each weight is rounded to the nearest step.
    """
    seen: dict[str, Tensor] = {}
    linears = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    hooks = [part.register_forward_pre_hook(partial(_remember, seen, name)) for name, part in linears.items()]
    module(*sample_inputs)
    for hook in hooks:
        hook.remove()
    for name, linear in linears.items():
        parent, _, own_name = name.rpartition(".")
        sample = seen.get(name, torch.eye(linear.in_features))
        module.get_submodule(parent).add_module(own_name, Int8Linear(linear, sample))


def is_int8(module: nn.Module) -> bool:
    """Does it have a layer that was rounded to weights of one byte? (Those that are stored so are not rounded.)"""
    return any(isinstance(part, Int8Linear) for part in module.modules())


class Int8Linear(PackedLinear):
    """A linear layer that was stored in float32, rounded for the export to int8 and a scale for each output."""

    def __init__(self, linear: nn.Linear, sample: Tensor) -> None:
        integers, scale = round_weights(linear.weight.T, sample)
        super().__init__(integers.T.contiguous(), scale, linear.bias)


def _remember(seen: dict[str, Tensor], name: str, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    seen[name] = inputs[0].reshape(-1, inputs[0].shape[-1])

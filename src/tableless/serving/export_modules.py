"""A trained recommender in the form that is exported: batch norm folded in, every expert a network of its own.

In the library all experts share one batched product, and a program whose shapes may not depend on the data would have
to send every id through every expert. Here each expert is given its own ids, so that an id costs what one expert costs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..embedding.activations import ACTIVATIONS
from ..embedding.deep_hash import DeepHashEmbedding
from ..embedding.head_and_tail import HeadAndTail
from ..embedding.scheme import EmbeddingScheme
from ..recommender.answers import Side
from ..recommender.models import Recommender
from .folding import FoldedLayer, FoldedNetwork, fold


class ExportedEmbedding(nn.Module):
    """Ids to vectors. `num_rows` is that of a closed scheme, whose ids are rows; any other row gives NaN."""

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
    """Pairs to scores; a pair with a row that a closed scheme lacks gives NaN.

    Features are found by id. Where the items go in as rows, `item_ids` [rows] says which id each row has.
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
        # Here and not in the vectors: what an activation makes of NaN differs from runtime to runtime.
        for known in (known_users, known_items):
            scores = scores if known is None else torch.where(known, scores, torch.nan)
        return scores


class DeepHashInParts(nn.Module):
    """A `DeepHashEmbedding` with a plain network for each expert."""

    def __init__(self, scheme: DeepHashEmbedding) -> None:
        super().__init__()
        self.embedding_dim = scheme.embedding_dim
        self.encoder = scheme.encoder
        self.router = scheme.router
        self.experts = nn.ModuleList(PlainNetwork(network, scheme) for network in fold(scheme.decoder))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        codes = self.encoder(ids)
        if self.router is None:
            return self.experts[0](codes)
        chosen = self.router(ids)[..., 0]
        places = [(chosen == expert).nonzero().squeeze(-1) for expert in range(len(self.experts))]
        vectors = torch.cat([expert(codes[own]) for expert, own in zip(self.experts, places, strict=True)])
        return codes.new_zeros(ids.shape[0], self.embedding_dim).index_put((torch.cat(places),), vectors)


class PlainNetwork(nn.Module):
    """Linear layers and activations, nothing else."""

    def __init__(self, network: FoldedNetwork, scheme: DeepHashEmbedding) -> None:
        super().__init__()
        self.activation = scheme.activation
        self.architecture = scheme.architecture
        self.hidden = nn.ModuleList(_linear(layer) for layer in network.hidden)
        self.output = _linear(network.output)

    def forward(self, rows: Tensor) -> Tensor:
        """Codes [n, code_dim] -> [n, embedding_dim]."""
        before: list[Tensor] = []
        for layer in self.hidden:
            after = ACTIVATIONS[self.activation](layer(rows))
            before.append(after + rows if self.architecture == "residual" and before else after)
            rows = torch.cat(before, dim=-1) if self.architecture == "densenet" else before[-1]
        return self.output(rows)


class HeadAndTailInParts(nn.Module):
    """A `HeadAndTail` whose network is in parts."""

    def __init__(self, scheme: HeadAndTail) -> None:
        super().__init__()
        self.head = scheme.head
        self.tail = DeepHashInParts(scheme.tail)

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        rows, is_frequent = self.head(ids)
        return torch.where(is_frequent.unsqueeze(-1), rows, self.tail(ids))


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
    """Both embeddings, then the recommender. The modules share one copy of the model; itself it stays as it is.

    `item_ids` [rows] are needed for a model with item features whose items go in as rows: which id each row has.
    """
    user_rows, item_rows = num_rows(model.users), num_rows(model.items)
    own = copy.deepcopy(model).requires_grad_(False).eval()
    own.add_module("users", _in_parts(own.users))
    own.add_module("items", _in_parts(own.items))
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


def num_rows(scheme: EmbeddingScheme) -> int | None:
    """How many rows a closed scheme has; None if it is open to any id."""
    return None if scheme.open_vocabulary else int(scheme.config["vocab_size"])


def _in_parts(scheme: EmbeddingScheme) -> nn.Module:
    if isinstance(scheme, HeadAndTail):
        return HeadAndTailInParts(scheme) if scheme.num_frequent else DeepHashInParts(scheme.tail)
    return DeepHashInParts(scheme) if isinstance(scheme, DeepHashEmbedding) else scheme


def _known(ids: Tensor, rows: int | None) -> tuple[Tensor | None, Tensor]:
    """Which ids have a row (None: all of them), and ids with row 0 in place of the others."""
    if rows is None:
        return None, ids
    known = (ids >= 0) & (ids < rows)
    return known, torch.where(known, ids, 0)


def _linear(layer: FoldedLayer) -> nn.Linear:
    inputs, outputs = layer.weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = nn.Parameter(layer.weight.T.contiguous(), requires_grad=False)
    linear.bias = nn.Parameter(layer.bias, requires_grad=False)
    return linear

"""The linear layers of an exported model with weights of one byte each.

A trained recommender in the form that is exported: batch norm folded in, every expert a network of its own.

In the library all experts share one batched product, and a program whose shapes may not depend on the data would have
to send every id through every expert. Here each expert is given its own ids, so that an id costs what one expert costs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...embedding.deep_hash import DeepHashEmbedding
from ...embedding.head_and_tail import HeadAndTail
from ...embedding.inference.int8 import round_weights
from ...embedding.inference.network import FoldedLayer, FoldedNetwork, fold
from ...embedding.layers import ACTIVATIONS
from ...embedding.scheme import EmbeddingScheme
from ...recommender.models import Recommender
from ...recommender.run_directory import Side


class Int8Linear(nn.Module):
    """A linear layer that keeps its weights as int8 and a scale for each output, and multiplies in float32.

    Activations are not rounded: a network that memorises amplifies that (docs/decisions.md), and with ranges taken from
    the batch an id's vector would depend on the ids beside it.
    """

    integers: Tensor  # int8 [outputs, inputs]
    scale: Tensor  # float32 [outputs]

    def __init__(self, linear: nn.Linear, sample: Tensor) -> None:
        super().__init__()
        integers, scale = round_weights(linear.weight.T, sample)
        self.register_buffer("integers", integers.T.contiguous())
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    @property
    def weight(self) -> Tensor:
        """Float32 [outputs, inputs]."""
        if torch.onnx.is_in_onnx_export():  # ONNX has an operator that its optimisers know not to compute in advance
            return torch.onnx.ops.symbolic(
                "DequantizeLinear",
                (self.integers, self.scale),
                attrs={"axis": 0},
                dtype=torch.float32,
                shape=self.integers.shape,
            )
        return self.integers.to(torch.float32) * self.scale.unsqueeze(-1)

    def forward(self, rows: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return F.linear(rows, self.weight, self.bias)


@torch.no_grad()
def round_linear_layers(module: nn.Module, *sample_inputs: Tensor) -> None:
    """Put an `Int8Linear` in the place of every linear layer, rounded for what it sees when given the sample.

    A layer whose weights are used without calling it, as the MLP's are, sees nothing: its inputs count as unrelated,
    and each weight goes to the nearest step.
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
    """Has it a layer with weights of one byte?"""
    return any(isinstance(part, Int8Linear) for part in module.modules())


def _remember(seen: dict[str, Tensor], name: str, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    seen[name] = inputs[0].reshape(-1, inputs[0].shape[-1])


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

"""Embeddings of several features, and a model that predicts clicks from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from tableless import SCHEMES
from tableless.embedding.budget import Budget
from tableless.embedding.distillation import distil
from tableless.embedding.joint import JointEmbedding
from tableless.embedding.scheme import EmbeddingScheme

EMBEDDING_DIM = 32
FULL, HASHED, LOW_RANK, JOINT = "full", "hashing-trick", "low-rank", "one joint network"
KINDS = [FULL, HASHED, LOW_RANK, JOINT]
# Values of a device or a region: a table of them is small, and a share of it would be no table at all.
_FEW = 1000


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
            scheme = SCHEMES[FULL if is_small else kind].from_budget(
                allowed, embedding_dim=EMBEDDING_DIM, vocab_size=size, seed=100 * seed + number
            )
            scheme.expect_training_from_nothing()  # the paper's recipe
            self.tables[name] = scheme

    def forward(self, ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{feature: int64 [...]} -> {feature: float32 [..., dim]}."""
        return {name: self.tables[name](own) for name, own in ids.items()}

    def fit(self, rows: Mapping[str, Tensor], *, seed: int) -> list[float]:
        """Fit each table to the rows of a full one; returns what is left unexplained of each."""
        left = []
        for name, own in rows.items():
            scheme = self.tables[name]
            assert isinstance(scheme, EmbeddingScheme)
            left.append(distil(own, scheme, seed=seed).unexplained)
        return left


class JointNetwork(nn.Module):
    """The same interface, where one network serves all features."""

    def __init__(self, budget: int, vocabularies: Mapping[str, int], seed: int) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"embedding_dim": EMBEDDING_DIM, "depth": 4, "num_hashes": 128}
        self.joint = JointEmbedding.from_budget(budget, features=dict(vocabularies), seed=seed, **sizes)

    def forward(self, ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{feature: int64 [...]} -> {feature: float32 [..., dim]}."""
        vectors: dict[str, Tensor] = self.joint(ids)
        return vectors

    def fit(self, rows: Mapping[str, Tensor], *, seed: int) -> list[float]:
        """Fit the network to the rows of all features at once: one after the other it would forget the first."""
        scheme = _AllFeatures(self.joint, {name: len(own) for name, own in rows.items()})
        return [distil(torch.cat(list(rows.values())), scheme, seed=seed).unexplained]


class _AllFeatures(EmbeddingScheme):
    """A joint embedding seen as one scheme: the values of all features are numbered one after the other."""

    open_vocabulary = False

    def __init__(self, joint: JointEmbedding, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.joint = joint
        self.sizes = dict(sizes)
        self.embedding_dim = joint.embedding_dim

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        own, places, start = {}, {}, 0
        for name, size in self.sizes.items():
            places[name] = ((ids >= start) & (ids < start + size)).nonzero().squeeze(-1)
            own[name] = ids[places[name]] - start
            start += size
        vectors = self.joint(own)  # all features in one pass, as batch norm sees them in training
        order = torch.cat(list(places.values()))
        return torch.cat(list(vectors.values()))[torch.argsort(order)]

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """Refused: it is made from a joint embedding, and that has the budget."""
        raise TypeError("a view of a joint network has no size of its own; size the JointEmbedding")


class ClickModel(nn.Module):
    """GMF over sums: the vectors of the user's side added up, times those of the item's side."""

    def __init__(self, embeddings: SeparateTables | JointNetwork) -> None:
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

    def fit_to(self, teacher: ClickModel, vocabularies: Mapping[str, int], *, seed: int) -> list[float]:
        """Say what a trained model of full tables says: its rows by regression, the rest of its weights as they are."""
        with torch.no_grad():
            rows = teacher.embeddings({name: torch.arange(size) for name, size in vocabularies.items()})
            self.weight.copy_(teacher.weight)
            self.bias.copy_(teacher.bias)
        return self.embeddings.fit(rows, seed=seed)


def click_model(kind: str, share: int, vocabularies: Mapping[str, int], *, seed: int) -> ClickModel:
    """A model whose embeddings have one part in `share` of the tables of all features (`full`: all of them)."""
    budget = EMBEDDING_DIM * sum(vocabularies.values()) // share
    if kind == JOINT:
        return ClickModel(JointNetwork(budget, vocabularies, seed))
    return ClickModel(SeparateTables(kind, budget, vocabularies, seed))

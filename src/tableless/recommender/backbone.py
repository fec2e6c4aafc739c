"""Recommenders: what every backbone has in common. `models.py` has those that exist."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ..embedding.scheme import EmbeddingScheme


class TableTarget(NamedTuple):
    """What the scheme of one side is to learn from a table. An error e of a row counts ‖e @ metric‖²."""

    rows: Tensor  # [ids, dim]
    metric: Tensor  # [dim, any]


class Recommender(nn.Module, ABC):
    """Scores how likely a user is to choose an item (a logit).

    It is given a scheme for users and one for items, and cannot tell a network from a table.
    """

    pairs_per_second: ClassVar[float]
    """How many user–item pairs `score_all` does in a second on two cores, roughly. It decides whether an evaluation is
    exact or on a sample."""
    scores_are_products: ClassVar[bool] = False
    """Is a score the inner product of what `prepare_users` and `prepare_items` return, plus a constant? Then an index
    can find the highest scores."""
    learns_from: ClassVar[tuple[type[Recommender], ...]] = ()
    """Backbones whose tables are trained before this one's, because its table learns more from them than from data."""
    table_decay: ClassVar[float] = 0.0
    """Weight decay of a model of full tables that others learn from, where the user sets none."""

    def __init__(self, *, users: EmbeddingScheme, items: EmbeddingScheme, seed: int) -> None:
        super().__init__()
        if users.embedding_dim != items.embedding_dim:
            raise ValueError(
                f"users have {users.embedding_dim} dimensions and items {items.embedding_dim}; they must agree"
            )
        self.users = users
        self.items = items
        self.seed = seed

    @property
    def extra_config(self) -> dict[str, Any]:
        """Arguments beside schemes and seed, as plain values: what `from_config` reads."""
        return {}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, users: EmbeddingScheme, items: EmbeddingScheme, seed: int
    ) -> Self:
        """A model of these schemes, with the arguments that its `extra_config` had."""
        return cls(users=users, items=items, seed=seed)

    def with_schemes(self, *, users: EmbeddingScheme, items: EmbeddingScheme) -> Self:
        """A model with the same arguments and other schemes, and nothing in common with this one in memory."""
        return type(self)(users=users, items=items, seed=self.seed)

    def forward(self, users: Tensor, items: Tensor, item_ids: Tensor | None = None) -> Tensor:
        """Users [batch] and items [batch, candidates] -> scores [batch, candidates]; each is embedded once.

        Both are what the schemes are fed: ids, or the rows of a closed scheme. A model with item features also needs
        the ids of the items: `item_ids` [batch, candidates] gives them where `items` are rows.
        """
        distinct_users, user = torch.unique(users, return_inverse=True)
        distinct_items, item = torch.unique(items, return_inverse=True)
        ids = None
        if item_ids is not None:
            ids = torch.empty_like(distinct_items).scatter_(0, item.reshape(-1), item_ids.reshape(-1))
        return self.score_distinct(distinct_users, distinct_items, user, item, ids)

    def score_distinct(
        self, users: Tensor, items: Tensor, user: Tensor, item: Tensor, item_ids: Tensor | None = None
    ) -> Tensor:
        """Distinct users and items and, for each of a batch, which of them are meant: [batch], [batch, candidates]."""
        user_parts = self.prepare_users(self.user_vectors(users))
        return self.score_pairs(user_parts, self.prepare_items(self.item_vectors(items, item_ids)), user, item)

    def user_vectors(self, users: Tensor) -> Tensor:
        """What `score` needs of a user: [..., dim]."""
        return self.users(users)

    def item_vectors(self, items: Tensor, item_ids: Tensor | None = None) -> Tensor:
        """What `score` needs of an item: [..., dim]. `items` are what the scheme is fed, `item_ids` their ids."""
        return self.with_features(self.items(items), items if item_ids is None else item_ids)

    def with_features(self, vectors: Tensor, item_ids: Tensor) -> Tensor:
        """Item vectors as `score` wants them; a model that has item features appends them."""
        return vectors

    @abstractmethod
    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Vectors [batch, dim] and [batch, candidates, dim] -> [batch, candidates]."""

    @abstractmethod
    def prepare_users(self, users: Tensor) -> Tensor:
        """The part of a score that depends on the user alone, for `score_all`."""

    @abstractmethod
    def prepare_items(self, items: Tensor) -> Tensor:
        """The part of a score that depends on the item alone, for `score_all`."""

    @abstractmethod
    def score_pairs(self, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """Prepared [users, …] and [items, …], positions in them [batch] and [batch, n] -> [batch, n], to train on."""

    @abstractmethod
    def score_all(self, users: Tensor, items: Tensor) -> Tensor:
        """Prepared [users, …] and [items, …] -> [users, items]."""

    @abstractmethod
    def score_lists(self, users: Tensor, items: Tensor, item: Tensor) -> Tensor:
        """Prepared [users, …] and [items, …], positions in the latter for each user [users, n] -> [users, n]."""

    @abstractmethod
    def targets(self) -> dict[Literal["users", "items"], TableTarget]:
        """Of a trained model of full tables: what the schemes of a smaller model are to learn from it."""

    def take_over(self, teacher: Self) -> None:
        """Take all weights of a teacher but those of its schemes, which are fitted to its `targets`."""
        own = ("users.", "items.")
        shared = {key: value for key, value in teacher.state_dict().items() if not key.startswith(own)}
        self.load_state_dict(shared, strict=False)

    def make_items_equally_long(self) -> None:
        """Make each item's vector one long, for a training that compares cosines. Only a table of rows can do that."""
        if not (self.scores_are_products and self.items.is_the_table):
            raise ValueError("cosines are for full tables and inner products; take similarity='direction'")
        with torch.no_grad():
            rows = rows_of_table(self.items)
            rows.copy_(F.normalize(rows))

    @property
    def needs_item_ids(self) -> bool:
        """Does a score depend on item features? These are found by id, even where a scheme is fed rows."""
        return False

    @property
    def answers_new_ids(self) -> bool:
        """Do both schemes answer for ids that were not in training?"""
        return self.users.open_vocabulary and self.items.open_vocabulary

    @property
    def embedding_bytes(self) -> int:
        """Bytes of the two schemes, as they are stored. A budget limits these."""
        return self.users.num_bytes + self.items.num_bytes

    @property
    def embedding_parameters(self) -> int:
        """Trainable parameters of the two schemes."""
        return self.users.num_parameters + self.items.num_parameters

    @property
    def num_parameters(self) -> int:
        """All parameters that are trained, those of packed schemes as well."""
        of_schemes = {id(parameter) for scheme in (self.users, self.items) for parameter in scheme.parameters()}
        own = sum(parameter.numel() for parameter in self.parameters() if id(parameter) not in of_schemes)
        return own + self.embedding_parameters

    def pack(self) -> None:
        """Bring both schemes into the form that is stored (`EmbeddingScheme.pack`)."""
        self.users.pack()
        self.items.pack()

    def unpack(self) -> None:
        """Bring both schemes into the form that is trained."""
        self.users.unpack()
        self.items.unpack()

    def sizes(self, num_ids: int | None) -> dict[str, Any]:
        """How large the model is, as plain values. `num_ids` are the known users and items together, if it is known.

        `bytes` are those of the two schemes, and `bytes_by_part` says for each what they are.
        """
        return {
            "num_parameters": self.num_parameters,
            "embedding_parameters": self.embedding_parameters,
            "bytes": self.embedding_bytes,
            "bytes_per_id": round(self.embedding_bytes / num_ids, 3) if num_ids else None,
            "bytes_by_part": {"users": self.users.bytes_by_part(), "items": self.items.bytes_by_part()},
        }


def rows_of_table(scheme: EmbeddingScheme) -> Tensor:
    """The rows [n, dim] of a full table."""
    return scheme.get_parameter("table").detach()

"""The learner of a stream: each batch is predicted, then learned. Its memory does not grow.

Frequent ids of the moment have rows (stream_side.py), a network computes the vectors of all others, and an item's score
has what its popularity of late adds (popularity.py). Against forgetting, a part of each batch are past actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..embedding.budget import Budget, resolve_budget
from ..embedding.deep_hash import DeepHashEmbedding
from ..kernels import Floats, Int64s
from .models import GMF
from .popularity import DecayedCounts, PopularityBias
from .stream_samples import RESERVOIR, PastActions, RecentItems, Reservoir
from .stream_shape import DEPTH, NUM_HASHES, SKETCH_DEPTH, shape_for
from .stream_side import LookedUp, StreamSide

_PAST = 100_000  # actions to learn again
_ROWS_BY = 2  # the count (of the longest half-life) that decides who has a row


@dataclass(frozen=True)
class StreamConfig:
    """How a stream is learned. The values did best on the first fifth of Globo's clicks (experiments/online.py)."""

    embedding_dim: int = 32
    half_life: int = 5_000
    """Actions after which popularity counts half."""
    num_negatives: int = 8
    """Half are drawn from all items seen, half by recent popularity."""
    replay: float = 0.2
    """Past actions for each new one."""
    user_rate: float = 0.3
    item_rate: float = 0.2
    bias_rate: float = 0.2
    adapts: bool = False
    """Are the rates of rows AdaGrad's, or those of plain steps?"""
    network_rate: float = 1e-3
    popularity_rate: float = 1e-2
    slowness: float = 0.999
    """Of the slow copy's weights, as much stays with each batch."""
    initial_std: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_negatives < 2:
            raise ValueError(f"num_negatives is {self.num_negatives}; it must be at least 2, one of each kind")


class Prediction:
    """A batch that was predicted, with what learning it needs as well."""

    def __init__(self, scores: Floats, users: LookedUp, items: LookedUp, user: Int64s, item: Int64s) -> None:
        self.scores = scores  # [actions, candidates], before the batch is learned
        self.users, self.items = users, items  # distinct ones
        self.user, self.item = user, item  # which of them, for new actions and then replayed ones


class StreamLearner:
    """Learns from (user, item) actions, batch by batch.

    Args:
        budget: Of the model, with rows, networks and counts: `"16MB"`, or a number of parameters, of four bytes each.
            The learner itself takes about three times as much, and some 3 MB for its samples.
        config: How it learns.

    Raises:
        ValueError: The budget is too small, or is a share of a table, which a stream does not have.

    Example:
        ```python
        import numpy as np
        from tableless.recommender.stream_learner import StreamConfig, StreamLearner
        from tableless.embedding.budget import Budget, resolve_budget

        learner = StreamLearner(Allowance(400_000, "bytes"), StreamConfig())
        users, items = np.array([1, 2, 3]), np.array([7, 7, 8])
        prediction = learner.predict(users, learner.candidates(items))
        learner.learn(prediction)
        model = learner.model()  # a GMF, to be saved and served
        ```
    """

    def __init__(self, budget: Budget, config: StreamConfig = StreamConfig()) -> None:
        self.config = config
        allowed = resolve_budget(budget, embedding_dim=config.embedding_dim, vocab_size=1)
        shape = shape_for(allowed, config.embedding_dim)
        self.users, self.items = (
            StreamSide(
                DeepHashEmbedding(
                    config.embedding_dim,
                    width=shape.width,
                    depth=DEPTH,
                    num_hashes=NUM_HASHES,
                    normalization="none",
                    initial_std=config.initial_std,
                    seed=2 * config.seed + side,
                ),
                num_rows=rows,
                constant=constant,
                rate=config.network_rate,
                slowness=config.slowness,
            )
            for side, (rows, constant) in enumerate(((shape.user_rows, 1.0), (shape.item_rows, None)))
        )
        sketch: dict[str, Any] = {
            "width": shape.cells,
            "depth": SKETCH_DEPTH,
            "half_life": config.half_life,
            "seed": config.seed,
        }
        self.popularity = PopularityBias(**sketch)
        self._adam = torch.optim.Adam(self.popularity.parameters(), config.popularity_rate)
        self.user_counts = DecayedCounts(**sketch)  # to choose who has a row; no part of the model
        self.seen = Reservoir(RESERVOIR, config.seed)
        self.recent = RecentItems(config.half_life)
        self.past = PastActions(_PAST)
        self.num_batches = 0

    @property
    def num_actions(self) -> int:
        """How many it has learned."""
        return self.past.num_actions

    def candidates(self, items: Int64s) -> Int64s:
        """Each item and its negatives: [actions, 1 + negatives]."""
        random, half = self._random("negatives"), self.config.num_negatives // 2
        rest = self.config.num_negatives - half
        self.seen.offer(items)
        anything = self.seen.values[random.integers(0, len(self.seen.values), (len(items), half))]
        if self.recent.num_actions:
            recent = self.recent.draw(random, len(items), rest)
        else:
            recent = random.choice(items, (len(items), rest))
        return np.concatenate([items[:, None], anything, recent], axis=1)

    def by_kind_of_negative(self, scores: Floats) -> tuple[Floats, Floats]:
        """Scores [actions, 1 + negatives] twice: with the negatives from all items, and with those by popularity."""
        half = self.config.num_negatives // 2
        return scores[:, : 1 + half], np.delete(scores, np.s_[1 : 1 + half], axis=1)

    def predict(self, users: Int64s, candidates: Int64s) -> Prediction:
        """The scores of new actions, before anything is learned of them. Past actions are added, to be learned too."""
        from ..kernels import stream_loops as loops

        num_new, random = len(users), self._random("replay")
        if len(self.past) and (count := int(num_new * self.config.replay)):
            past_users, past_items = self.past.draw(random, count)
            others = self.seen.values[random.integers(0, len(self.seen.values), (count, candidates.shape[1] - 1))]
            users = np.concatenate([users, past_users])
            candidates = np.concatenate([candidates, np.concatenate([past_items[:, None], others], axis=1)])
        (distinct_users, user), (distinct_items, item) = _numbered(users), _numbered(candidates)
        looked_up = self.users.look_up(distinct_users), self.items.look_up(distinct_items)
        with torch.no_grad():
            biases = self.popularity(torch.from_numpy(distinct_items)).numpy()
        scores = np.empty((num_new, candidates.shape[1]), np.float32)
        loops.score_actions(user[:num_new], item[:num_new], looked_up[0].vectors, looked_up[1].vectors, biases, scores)
        return Prediction(scores, *looked_up, user, item)

    def learn(self, batch: Prediction) -> float:
        """Learn the batch that was predicted last. Returns the mean loss of its new actions."""
        from ..kernels import stream_loops as loops

        config, users, items = self.config, batch.users, batch.items
        num_new, item_ids = len(batch.scores), torch.from_numpy(batch.items.ids)
        counts = self.popularity.counts(item_ids)
        biases = self.popularity(item_ids)
        slopes = np.zeros(len(items.ids), np.float32)
        rates = np.array([config.user_rate, config.item_rate, config.bias_rate])
        new, past = slice(None, num_new), slice(num_new, None)
        drawn = self._log_chances(counts[:, 1].numpy())
        loss = 0.0
        for part, corrections in ((new, drawn), (past, np.zeros_like(drawn))):
            loss += loops.learn_actions(
                batch.user[part], batch.item[part], corrections, users.vectors, items.vectors, biases.detach().numpy(),
                users.squares, items.squares, rates, config.adapts, slopes,
            ) * (part is new)  # fmt: skip
        self._adam.zero_grad()
        biases.backward(torch.from_numpy(slopes / len(batch.user)))
        self._adam.step()
        self._count_and_keep(batch, num_new)
        self.num_batches += 1
        return loss / num_new

    def _count_and_keep(self, batch: Prediction, num_new: int) -> None:
        random, new_users = self._random("teach"), batch.users.ids[batch.user[:num_new]]
        new_items = batch.items.ids[batch.item[:num_new, 0]]
        for side, counts, own, place, ids in (
            (self.users, self.user_counts, batch.users, batch.user, new_users),
            (self.items, self.popularity.counts, batch.items, batch.item[:, 0], new_items),
        ):
            side.divide_uses(float(counts.add(torch.from_numpy(ids))[_ROWS_BY]))
            acting, replayed = np.zeros(len(own.ids), np.bool_), np.zeros(len(own.ids), np.bool_)
            acting[place[:num_new]], replayed[place[num_new:]] = True, True
            weighted = counts.weighted(torch.from_numpy(own.ids))[:, _ROWS_BY].numpy().copy()
            rest, vectors = side.keep(own, acting, weighted)
            side.teach(rest, vectors, own.ids[replayed & (own.slots < 0)], random)
        self.recent.add(new_items)
        self.past.add(new_users, new_items, random)

    def _log_chances(self, counts: Floats) -> Floats:
        """How likely each item is drawn as a negative: half of them by `counts`, half from all that were seen."""
        total = min(self.recent.num_actions, self.config.half_life / math.log(2)) or 1.0
        chances: Floats = np.log(counts / total / 2 + 0.5 / len(self.seen.values)).astype(np.float32)
        return chances

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """All, by name."""
        return {"adam.popularity": self._adam, "adam.users": self.users.adam, "adam.items": self.items.adam}

    def _random(self, purpose: str) -> np.random.Generator:
        """Draws of a batch depend on its number alone, so that a learner that goes on draws what it would have."""
        return np.random.default_rng([self.config.seed, self.num_batches, *purpose.encode()])

    def model(self) -> GMF:
        """A copy of what was learned, to be saved and served."""
        popularity = PopularityBias(**self.popularity.config)
        popularity.load_state_dict(self.popularity.state_dict())
        return GMF(users=self.users.scheme(), items=self.items.scheme(), popularity=popularity, seed=self.config.seed)


def _numbered(ids: Int64s) -> tuple[Int64s, Int64s]:
    """Distinct ids, and for each place [any shape] which of them it is."""
    from ..kernels import id_loops as loops

    flat = np.ascontiguousarray(ids).reshape(-1)
    firsts, numbers = np.empty(flat.size, np.int64), np.empty(flat.size, np.int64)
    count = loops.distinct(flat, firsts, numbers)
    return flat[firsts[:count]], numbers.reshape(ids.shape)

"""Two-tower retrieval: users and items as vectors, in-batch softmax, nearest items by faiss. No tables, no vocabulary.

    pip install 'tableless[data,serve]'
    python -m examples.two_tower_retrieval

The item tower is a deep hash embedding. The user tower adds one of the user's id to the pooled items of the user's
past, so a user who came today is answered by what little is known. The data is a synthetic world, whose own
probabilities show how much can be reached at all; each user's last item is held out.
"""

from __future__ import annotations

import faiss
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tableless import DeepHashEmbedding, EmbeddingBag
from tableless.data.splits import Split, split_leave_one_out
from tableless.data.world import World

DIM, PAST, PADDING, COUNT = 32, 20, -1, 10


class TwoTowers(nn.Module):
    """Both towers end in vectors of one space; their dot product is the score."""

    def __init__(self, *, num_users: int, num_items: int) -> None:
        super().__init__()
        self.users = DeepHashEmbedding.from_budget("1/16", embedding_dim=DIM, vocab_size=num_users)
        self.items = DeepHashEmbedding.from_budget("1/1", embedding_dim=DIM, vocab_size=num_items, seed=1)
        self.past = EmbeddingBag(self.items, mode="mean", padding_id=PADDING)
        self.project = nn.Linear(DIM, DIM)

    def user_vectors(self, users: Tensor, past: Tensor) -> Tensor:
        """Ids [n] and the items of their past [n, PAST] -> [n, DIM]."""
        return self.users(users) + self.project(self.past(past))


def histories(split: Split) -> Tensor:
    """The latest items of each user's training actions, [users, PAST], padded in front."""
    rows = np.full((split.train.num_users, PAST), PADDING)
    for user, (start, stop) in enumerate(zip(split.train.starts[:-1], split.train.starts[1:], strict=True)):
        latest = split.train.items[start:stop][-PAST:]
        rows[user, PAST - len(latest) :] = latest
    return torch.from_numpy(rows)


def train(model: TwoTowers, split: Split, past: Tensor, *, epochs: int) -> None:
    """Each user's item must score above the other items of the batch. Popular items come up often and count less."""
    users = torch.from_numpy(split.train.user_rows().astype(np.int64))
    items = torch.from_numpy(split.train.items.astype(np.int64))
    log_share = torch.bincount(items, minlength=split.train.num_items).clamp(min=1).div(len(items)).log()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(items)), 512):
            user, item = users[batch], items[batch]
            known = past[user].masked_fill(past[user] == item[:, None], PADDING)  # without the item to predict
            scores = model.user_vectors(user, known) @ model.items(item).T - log_share[item]
            twins = (item[:, None] == item) & ~torch.eye(len(item), dtype=torch.bool)  # other rows with the same item
            loss = F.cross_entropy(scores.masked_fill(twins, -torch.inf), torch.arange(len(item)))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()


def recall(found: Tensor, split: Split) -> float:
    """How often the held-out item is among the first COUNT of `found` [users, any] that the user does not have yet."""
    hits = 0
    for user, wanted in zip(split.test_users, split.test_items, strict=True):
        owned = split.train.items[split.train.starts[user] : split.train.starts[user + 1]]
        new = found[user][~np.isin(found[user].numpy(), owned)]
        hits += int(wanted in new[:COUNT])
    return hits / len(split.test_users)


def main() -> dict[str, float]:
    """Train, index, search. Returns the recall of the towers, of popularity, and of the world's own probabilities."""
    torch.manual_seed(0)
    world = World(num_users=1_000, num_items=600, num_actions=40_000, num_clusters=12)
    split = split_leave_one_out(world.interactions())
    users, items = torch.arange(world.num_users), torch.arange(world.num_items)
    past, model = histories(split), TwoTowers(num_users=len(users), num_items=len(items))
    train(model, split, past, epochs=6)
    index = faiss.IndexFlatIP(DIM)  # exact; take an approximate index for millions of items
    with torch.no_grad():
        index.add(model.eval().items(items).numpy())
        _, nearest = index.search(model.user_vectors(users, past).numpy(), 300)
    popular = torch.bincount(torch.from_numpy(split.train.items.astype(np.int64))).argsort(descending=True)
    found = {
        "two towers": torch.from_numpy(nearest),
        "popularity": popular.expand(len(users), -1),
        "best possible": torch.from_numpy(world.scores(users.numpy())).argsort(descending=True),
    }
    results = {name: recall(ranking, split) for name, ranking in found.items()}
    for name, value in results.items():
        print(f"{name:<14} recall@{COUNT} {value:.3f}")
    return results


if __name__ == "__main__":
    main()

"""A plain PyTorch model, trained with `nn.Embedding`: its tables are replaced in place, and it goes on as before.

python -m examples.replace_nn_embedding
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tableless import replace_embeddings

USERS, ITEMS, DIM = 1_500, 1_000, 16


class Clicks(nn.Module):
    """A model in plain PyTorch: nothing in it refers to tableless."""

    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.item = nn.Embedding(ITEMS, DIM)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.05)
        self.score = nn.Sequential(nn.Linear(2 * DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """The logit of a click, [n]."""
        user, item = self.user(users), self.item(items)
        return (user * item).sum(-1) + self.score(torch.cat([user, item], -1))[:, 0]


def make_clicks(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Users who click on items of their taste, and on items that please everybody."""
    generator = torch.Generator().manual_seed(0)
    tastes, styles = (torch.randn(size, 3, generator=generator) for size in (USERS, ITEMS))
    appeal = torch.randn(ITEMS, generator=generator)
    users, items = (torch.randint(size, (count,), generator=generator) for size in (USERS, ITEMS))
    liking = 1.5 * (tastes[users] * styles[items]).sum(-1) + appeal[items]
    return users, items, torch.bernoulli(torch.sigmoid(liking), generator=generator)


def train(model: nn.Module, users: Tensor, items: Tensor, labels: Tensor, *, epochs: int, rate: float) -> None:
    """Any training loop will do. The optimizer is made here, after replacing: it must hold the new parameters."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(labels), generator=torch.Generator().manual_seed(1)), 2048):
            loss = F.binary_cross_entropy_with_logits(model(users[batch], items[batch]), labels[batch])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()


@torch.no_grad()
def auc(model: nn.Module, users: Tensor, items: Tensor, labels: Tensor) -> float:
    """The chance that a click has a higher score than an item that was not clicked."""
    ranks = model.eval()(users, items).argsort().argsort().double() + 1
    clicks = int(labels.sum())
    return float((ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks)))


def main() -> dict[str, float]:
    """Train, replace, train a little more. Returns the AUC on held-out examples at each stage."""
    torch.manual_seed(0)
    data = make_clicks(200_000)
    seen, held_out = [part[:180_000] for part in data], [part[180_000:] for part in data]
    model = Clicks()
    train(model, *seen, epochs=3, rate=0.01)
    found = {"tables": auc(model, *held_out)}
    for table in replace_embeddings(model, budget="1/2", min_rows=1_000, visits=150):
        print(f"{table.name}: {table.bytes_before:,} → {table.bytes_after:,} bytes")
    found["replaced"] = auc(model, *held_out)
    train(model.train(), *seen, epochs=1, rate=1e-3)
    found["trained on"] = auc(model, *held_out)
    for stage, value in found.items():
        print(f"{stage:<12} AUC {value:.3f}")
    return found


if __name__ == "__main__":
    main()

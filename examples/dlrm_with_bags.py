"""A DLRM-style click model without tables: several features, a bag of recent items, pairwise dot products.

    python -m examples.dlrm_with_bags

User, device and city share one network and one budget (`JointEmbedding`). The item that is shown and the items clicked
on lately share another: it is looked up directly for the one, pooled by `EmbeddingBag` for the others.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tableless import DeepHashEmbedding, EmbeddingBag, JointEmbedding

FEATURES = {"user": 5_000, "device": 1_000, "city": 500}
ITEMS, DIM, PADDING = 400, 16, -1


class DLRM(nn.Module):
    """Embeddings and a projection of the numbers; all dot products between them; a small network on top."""

    def __init__(self) -> None:
        super().__init__()
        self.features = JointEmbedding.from_budget(
            "1/8", features=FEATURES, embedding_dim=DIM, num_hashes=64, depth=2, initial_std=0.1
        )
        self.items = DeepHashEmbedding.from_budget(
            "1/1", embedding_dim=DIM, vocab_size=ITEMS, num_hashes=32, depth=2, initial_std=0.1
        )
        self.recent = EmbeddingBag(self.items, mode="mean", padding_id=PADDING)
        self.numbers = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, DIM))
        pairs = 6 * 5 // 2
        self.top = nn.Sequential(nn.Linear(pairs + DIM, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The logit of a click, [n]."""
        numbers = self.numbers(batch["numbers"])
        embedded = self.features({name: batch[name] for name in FEATURES})
        vectors = [numbers, *embedded.values(), self.items(batch["item"]), self.recent(batch["recent"])]
        stacked = torch.stack(vectors, 1)  # [n, 6, DIM]
        dots = stacked @ stacked.transpose(1, 2)
        first, second = torch.tril_indices(len(vectors), len(vectors), offset=-1)
        return self.top(torch.cat([dots[:, first, second], numbers], -1))[:, 0]


def make_clicks(count: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """People click on items that are like those they clicked on lately. Also returns how likely each click was."""
    generator = torch.Generator().manual_seed(0)
    styles = F.normalize(torch.randn(ITEMS, 4, generator=generator), dim=-1)
    appeal = torch.randn(ITEMS, generator=generator)
    batch = {name: torch.randint(size, (count,), generator=generator) for name, size in FEATURES.items()}
    batch["item"] = torch.randint(ITEMS, (count,), generator=generator)
    batch["numbers"] = torch.randn(count, 2, generator=generator)
    batch["recent"] = torch.randint(ITEMS, (count, 5), generator=generator)
    batch["recent"][torch.rand(count, 5, generator=generator) < 0.3] = PADDING
    present = batch["recent"].ne(PADDING).unsqueeze(-1)
    taste = (styles[batch["recent"]] * present).sum(1) / present.sum(1).clamp(min=1)
    habit = torch.randn(FEATURES["device"], generator=generator)[batch["device"]]
    liking = 4 * (taste * styles[batch["item"]]).sum(-1) + appeal[batch["item"]] + habit - batch["numbers"][:, 0]
    chances = torch.sigmoid(liking)
    return batch, torch.bernoulli(chances, generator=generator), chances


def main() -> list[float]:
    """Train for some passes over the clicks. Returns the loss on held-out clicks, before and after each pass."""
    torch.manual_seed(0)
    batch, labels, chances = make_clicks(44_000)
    held_out = torch.arange(40_000, 44_000)
    model = DLRM()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    tables = (sum(FEATURES.values()) + ITEMS) * DIM * 4
    print(f"{model.features.num_bytes + model.items.num_bytes:,} bytes instead of {tables:,} in tables")

    def loss_of(rows: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            model({name: part[rows] for name, part in batch.items()}), labels[rows]
        )

    losses = []
    for number in range(5):
        with torch.no_grad():
            losses.append(float(loss_of(held_out)))
        print(f"after {number} passes: loss {losses[-1]:.4f}")
        for rows in torch.split(torch.randperm(40_000), 512):
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(rows))
            optimizer.step()
    print(f"best possible:  loss {float(F.binary_cross_entropy(chances[held_out], labels[held_out])):.4f}")
    return losses


if __name__ == "__main__":
    main()

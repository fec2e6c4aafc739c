"""A trained table becomes a network, without the data that the table was trained on. The network is saved and loaded.

python -m examples.convert_a_table
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from torch import Tensor, nn

from tableless import DeepHashEmbedding, distil, load_scheme, save_scheme
from tableless.data.world import World

DIM = 32


def trained_table() -> nn.Embedding:
    """In place of your table: the directions in which the items of a synthetic world differ most, a row an item."""
    actions = World(num_users=1_000, num_items=1_000, num_actions=50_000).interactions()
    chosen = torch.zeros(actions.num_users, actions.num_items)
    chosen[torch.from_numpy(actions.user_rows().astype(np.int64)), torch.from_numpy(actions.items.astype(np.int64))] = 1
    _, sizes, directions = torch.svd_lowrank(chosen / chosen.sum(0).sqrt().clamp(min=1), q=DIM)
    return nn.Embedding(actions.num_items, DIM, _weight=directions * sizes)


def neighbours(vectors: Tensor, *, count: int = 10) -> Tensor:
    """The nearest other rows of each row, by cosine: [rows, count]."""
    unit = nn.functional.normalize(vectors, dim=-1)
    return (unit @ unit.T).fill_diagonal_(-2).topk(count).indices


def shared(first: Tensor, second: Tensor) -> float:
    """The share of neighbours that two lists of neighbours have in common."""
    return float((first[:, :, None] == second[:, None, :]).any(-1).double().mean())


def main() -> dict[str, float]:
    """Convert at several budgets. Returns the share of the table's variance that is lost, by budget."""
    torch.manual_seed(0)
    table = trained_table()
    rows = len(table.weight)
    print(f"the table: {rows:,} rows, {table.weight.nbytes:,} bytes")
    lost = {}
    for budget in ("1/1", "1/2"):
        network = DeepHashEmbedding.from_budget(budget, embedding_dim=DIM, vocab_size=rows)
        fit = distil(table, network, visits=200)  # leave visits out for a closer fit, in more time
        with torch.no_grad():
            kept = shared(neighbours(table.weight), neighbours(network(torch.arange(rows))))
        print(
            f"{budget}: {network.num_bytes:>7,} bytes, {fit.unexplained:.1%} of the variance lost, "
            f"cosine {fit.mean_cosine:.3f}, {kept:.0%} of the ten nearest neighbours kept"
        )
        lost[budget] = fit.unexplained
        with tempfile.TemporaryDirectory() as directory:  # config.json and model.safetensors
            save_scheme(network, directory)
            again = load_scheme(directory)
        anything = torch.tensor([0, rows - 1, 10**15])  # the last one never had a row
        assert torch.equal(again(anything), network(anything))
    return lost


if __name__ == "__main__":
    main()

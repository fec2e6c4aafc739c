"""Compositional embedding: the remainder of an id picks a row, the quotient picks a small network that changes it."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..layers import Grouping
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, require_known, seeded


class CompositionalEmbedding(EmbeddingScheme):
    """Quotient–remainder, path-based, with one hidden layer (appendix B.2: 64 nodes).

    Id x has row x mod `num_remainders`, which network x div `num_remainders` transforms. No other id has this pair.
    """

    open_vocabulary = False

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        num_remainders: int,
        hidden: int = 64,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.num_remainders = num_remainders
        self.hidden = hidden
        self.initial_std = initial_std
        self.seed = seed
        self.num_quotients = math.ceil(vocab_size / num_remainders)
        generator = seeded(seed)
        # Rows start as small as those of every other table. Steps of Adam would hardly change rows of size 1
        # (docs/decisions.md). The networks keep the size of a row; a ReLU halves the mean square of what enters it.
        self.table = normal(num_remainders, embedding_dim, std=initial_std, generator=generator)
        up, down = 1 / math.sqrt(embedding_dim), 1 / math.sqrt(hidden / 2)
        self.up = normal(self.num_quotients, embedding_dim, hidden, std=up, generator=generator)
        self.up_bias = nn.Parameter(torch.zeros(self.num_quotients, 1, hidden))
        self.down = normal(self.num_quotients, hidden, embedding_dim, std=down, generator=generator)
        self.down_bias = nn.Parameter(torch.zeros(self.num_quotients, 1, embedding_dim))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        require_known(ids, self.vocab_size)
        flat = ids.reshape(-1)
        rows = F.embedding(flat % self.num_remainders, self.table)  # [n, embedding_dim]
        paths = Grouping(flat // self.num_remainders, self.num_quotients)
        inner = torch.relu(torch.baddbmm(self.up_bias, paths.scatter(rows), self.up))
        return paths.gather(torch.baddbmm(self.down_bias, inner, self.down)).view(*ids.shape, self.embedding_dim)

    @property
    def output_layer(self) -> tuple[Tensor, Tensor]:
        """The second layers of all networks."""
        return self.down, self.down_bias

    @classmethod
    def from_budget(
        cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0, hidden: int = 64
    ) -> Self:
        """The longest table of remainders that fits into the budget together with the networks it needs.

        Networks of 64 nodes are large beside a small table. If not even the cheapest mixture of rows and networks fits,
        `hidden` is halved until one does.
        """
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        build = partial(cls, embedding_dim, vocab_size=vocab_size, hidden=hidden, seed=seed)

        def cost(num_quotients: int) -> int:
            with torch.device("meta"):
                return allowed.cost(build(num_remainders=math.ceil(vocab_size / num_quotients)))

        # More networks need fewer rows. So the parameters first fall and then rise with the number of networks. Find
        # the cheapest number, then the fewest networks that fit, and give the rest of the budget to the table.
        quotients = range(1, vocab_size + 1)
        cheapest = bisect_left(quotients, True, hi=vocab_size - 1, key=lambda q: cost(q + 1) >= cost(q))
        if hidden > 1 and cost(quotients[cheapest]) > allowed.amount:
            return cls.from_budget(
                allowed, embedding_dim=embedding_dim, vocab_size=vocab_size, seed=seed, hidden=hidden // 2
            )
        fewest = quotients[bisect_left(quotients, True, hi=cheapest, key=lambda q: cost(q) <= allowed.amount)]
        smallest = math.ceil(vocab_size / fewest)
        networks = math.ceil(vocab_size / smallest)
        largest = vocab_size if networks == 1 else math.ceil(vocab_size / (networks - 1)) - 1
        return fit_to_budget(
            lambda num_remainders: build(num_remainders=num_remainders), allowed, smallest=smallest, largest=largest
        )

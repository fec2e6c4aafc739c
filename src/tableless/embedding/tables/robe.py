"""ROBE: all vectors are cut out of one array of numbers, in chunks that begin where a hash says."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..hashing import HashFamily, derive_seed
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, seeded
from .shared_rows import conjugate_gradients

_MOST_NUMBERS = 2**29  # as many places as a hash function can tell apart
_ENOUGH = 1e-6  # a step of the fit that explains less than this share of the rows is the last


class RobeEmbedding(EmbeddingScheme):
    """Chunks of `chunk_size` neighbouring numbers of an array of `size`; at its end the array goes on at its beginning.

    Each chunk of an id's vector begins at a hash of the id. Two ids may share a chunk, or a piece of one, but hardly
    ever a whole vector. With `signed`, another hash says whether a chunk is taken times -1.
    """

    open_vocabulary = True
    tuning_rate = 3e-2  # the fit is far from the rows; chosen on validation data, from 1e-3 to 1e-1

    def __init__(
        self,
        embedding_dim: int,
        *,
        size: int,
        chunk_size: int = 8,
        signed: bool = False,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if chunk_size < 1:
            raise ValueError(f"chunk_size is {chunk_size}; at least 1 is needed")
        self.embedding_dim = embedding_dim
        self.size = size
        self.chunk_size = chunk_size
        self.signed = signed
        self.initial_std = initial_std
        self.seed = seed
        num_chunks = math.ceil(embedding_dim / chunk_size)
        self.starts = HashFamily(num_chunks, size, seed, mixed=True)
        if signed:
            self.signs = HashFamily(num_chunks, 2, derive_seed(seed, "sign"), mixed=True)
        self.numbers = normal(size, std=initial_std, generator=seeded(seed))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        places = self.places(ids)
        vectors = self.numbers.gather(0, places.reshape(-1)).view(places.shape)
        return vectors * self._factors(ids) if self.signed else vectors

    def places(self, ids: Tensor) -> Tensor:
        """Where in the array each number of a vector is: int64 [...] -> int64 [..., embedding_dim]."""
        within = torch.arange(self.chunk_size, device=ids.device)
        places = (self.starts(ids).unsqueeze(-1) + within) % self.size  # [..., num_chunks, chunk_size]
        return places.flatten(-2)[..., : self.embedding_dim]

    def _factors(self, ids: Tensor) -> Tensor:
        """1 or -1 for each number of a vector."""
        signs = 1 - 2 * self.signs(ids)  # [..., num_chunks]
        return signs.repeat_interleave(self.chunk_size, -1)[..., : self.embedding_dim].to(self.numbers.dtype)

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Least squares by conjugate gradients. Where all dimensions count alone, the first step leads to the means."""
        places = self.places(ids).reshape(-1)
        factors = self._factors(ids) if self.signed else torch.ones_like(rows)
        square = metric @ metric.mT

        def collected(vectors: Tensor) -> Tensor:
            """For each number the sum of what the vectors have there, [n, dim] -> [size, 1]."""
            return vectors.new_zeros(self.size).index_add_(0, places, vectors.reshape(-1)).unsqueeze(-1)

        def counted(vectors: Tensor) -> Tensor:
            return collected((vectors * weights.unsqueeze(-1)) @ square * factors)

        def equations(numbers: Tensor) -> Tensor:
            return counted(numbers.squeeze(-1)[places].view_as(rows) * factors)

        diagonal = collected(weights.unsqueeze(-1) * square.diagonal()).squeeze(-1)
        enough = _ENOUGH * float((rows @ metric).square().sum(-1) @ weights)
        start = self.numbers.to(rows).unsqueeze(-1)
        found = conjugate_gradients(equations, counted(rows), diagonal, start, enough)
        self.numbers.copy_(found.squeeze(-1))
        return self, torch.zeros_like(ids, dtype=torch.bool)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        embedding_dim: int,
        vocab_size: int,
        seed: int = 0,
        chunk_size: int = 8,
        signed: bool = False,
    ) -> Self:
        """As many numbers as the budget pays for, but at least those of one vector."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        return fit_to_budget(
            lambda size: cls(embedding_dim, size=size, chunk_size=chunk_size, signed=signed, seed=seed),
            allowed,
            smallest=embedding_dim,
            largest=_MOST_NUMBERS,
        )

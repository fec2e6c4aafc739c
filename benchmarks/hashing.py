"""How much faster is the compiled encoder than the same formula in torch's own operations? One core."""

from __future__ import annotations

import torch

from benchmarks.measuring import Row, Spread, at_most, figure, on_threads, show, time_alternately
from tableless.embedding.encoders import DenseHashEncoder
from tableless.embedding.hashing import kernel_buckets, torch_buckets


def measure(*, num_ids: int = 10_000, num_hashes: int = 1024, repetitions: int = 9) -> list[Row]:
    encoder = DenseHashEncoder(num_hashes)
    coefficients, num_buckets = encoder.hashes.coefficients, encoder.hashes.num_buckets
    ids = torch.randint(-(2**62), 2**62, (num_ids,), generator=torch.Generator().manual_seed(0))
    with on_threads(1):
        seconds = time_alternately(
            {
                "torch codes": lambda: (
                    torch_buckets(ids, coefficients, num_buckets).float() * (2 / (num_buckets - 1)) - 1
                ),
                "torch buckets": lambda: torch_buckets(ids, coefficients, num_buckets),
                "codes": lambda: encoder(ids),
                "buckets": lambda: kernel_buckets(ids, coefficients, num_buckets),
            },
            repetitions=repetitions,
        )
    size = f"{num_ids:,} ids × {num_hashes} hashes"
    return [
        at_most(
            f"codes, compiled against torch's operations, {size}",
            Spread.of_ratios(seconds["codes"], seconds["torch codes"]),
            0.15,
            " ×",
        ),
        figure("buckets, the same", Spread.of_ratios(seconds["buckets"], seconds["torch buckets"]), " ×"),
        figure("codes, compiled", Spread.of(value / num_ids * 1e6 for value in seconds["codes"]), " µs per id"),
    ]


if __name__ == "__main__":
    show(measure())

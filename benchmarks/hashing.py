"""How much faster is the compiled encoder than the same formula in torch's own operations? One core."""

from __future__ import annotations

import torch

from benchmarks.measuring import describe_machine, ratio, time_alternately
from tableless.embedding.encoders import DenseHashEncoder
from tableless.embedding.hashing import kernel_buckets, torch_buckets

NUM_IDS, NUM_HASHES = 10_000, 1024


def main() -> None:
    torch.set_num_threads(1)
    encoder = DenseHashEncoder(NUM_HASHES)
    coefficients, num_buckets = encoder.hashes.coefficients, encoder.hashes.num_buckets
    ids = torch.randint(-(2**62), 2**62, (NUM_IDS,), generator=torch.Generator().manual_seed(0))
    seconds = time_alternately(
        {
            "eager codes": lambda: torch_buckets(ids, coefficients, num_buckets).float() * (2 / (num_buckets - 1)) - 1,
            "eager buckets": lambda: torch_buckets(ids, coefficients, num_buckets),
            "compiled codes": lambda: encoder(ids),
            "compiled buckets": lambda: kernel_buckets(ids, coefficients, num_buckets),
        }
    )
    print(describe_machine())
    print(f"{NUM_IDS:,} ids × {NUM_HASHES} hashes")
    for name, values in seconds.items():
        print(f"  {name:<17} {sorted(values)[len(values) // 2] / NUM_IDS * 1e6:6.2f} µs per id")
    print(f"compiled / eager codes:   {ratio(seconds, 'compiled codes', 'eager codes')}   target ≤ 0.15")
    print(f"compiled / eager buckets: {ratio(seconds, 'compiled buckets', 'eager buckets')}")


if __name__ == "__main__":
    main()

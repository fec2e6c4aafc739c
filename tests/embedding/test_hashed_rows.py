"""Tables that look up by hash use their rows as chance would, whatever the ids are like."""

import json
import math

import numpy as np
import pytest
import torch

from tableless import SCHEMES, HashFamily, load_scheme, save_scheme, to_ids
from tableless.embedding.hashing import mix_ids, split_mix_64, torch_buckets
from tableless.embedding.tables import HashEmbedding
from tableless.kernels.pair_loops import _mix
from tableless.recommender.stream_samples import Reservoir

VOCAB = 6_040  # users of MovieLens-1M
EXTREMES = [0, 1, -1, 2**31, 2**32, 2**63 - 1, -(2**63)]


def scattered(count=VOCAB, seed=0):
    return torch.randint(0, 2**63 - 1, (count,), generator=torch.Generator().manual_seed(seed))


IDS = {
    "in a row from 0": torch.arange(VOCAB),
    "in a row from 10^12": torch.arange(VOCAB) + 10**12,
    "scattered": scattered(),
    "multiples of 1000": torch.arange(VOCAB) * 1000,
    "multiples of 2^32": torch.arange(VOCAB) << 32,
    "strings": to_ids([f"user_{number}" for number in range(VOCAB)]),
}
HASHED = [
    name
    for name, scheme in SCHEMES.items()
    if not scheme.is_the_table and hasattr(scheme.from_budget("1/1", embedding_dim=8, vocab_size=300), "hashes")
]


def require_chance(buckets, num_rows):
    """Occupied rows lie within five standard deviations of what throwing at random gives."""
    load = buckets.numel() / num_rows
    expected = num_rows * (1 - (1 - 1 / num_rows) ** buckets.numel())
    deviation = math.sqrt(num_rows * math.exp(-load) * (1 - (1 + load) * math.exp(-load)))
    assert abs(len(buckets.unique()) - expected) < 5 * deviation


def test_every_scheme_that_hashes_into_rows_is_found():
    assert {"hashing-trick", "bloom", "hash-embedding", "hybrid"} <= set(HASHED)
    assert "dhe" not in HASHED


@pytest.mark.parametrize("name", HASHED)
@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_used_as_chance_would(name, kind, seed):
    scheme = SCHEMES[name].from_budget("1/2", embedding_dim=8, vocab_size=VOCAB, seed=seed)
    buckets = scheme.hashes(IDS[kind])
    require_chance(buckets, scheme.num_rows)
    for own in buckets.unbind(-1):
        require_chance(own, scheme.num_rows)


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("seed", range(5))
def test_hashed_weights_are_used_as_chance_would(kind, seed):
    scheme = HashEmbedding.from_budget("1/2", embedding_dim=8, vocab_size=VOCAB, weights="hashed", seed=seed)
    require_chance(scheme.weight_hash(IDS[kind]), VOCAB)


@pytest.mark.parametrize("values", [EXTREMES, scattered(1000).tolist(), (-scattered(1000, seed=1)).tolist()])
def test_mixed_ids_are_those_of_every_other_split_mix_64_here(values):
    mixed = mix_ids(torch.tensor(values)).numpy().view(np.uint64).tolist()
    for value, found in zip(values, mixed, strict=True):
        assert found == next(split_mix_64((value - 0x9E3779B97F4A7C15) % 2**64))
        assert found == int(_mix(np.uint64(value % 2**64)))
    reservoir = Reservoir(10, seed=0)
    reservoir._seed = np.uint64(0)
    assert reservoir._hash(np.array(values)).tolist() == mixed
    assert len(set(mixed)) == len(set(values))


def test_dense_codes_and_routers_hash_the_id_as_it_is():
    scheme = SCHEMES["dhe"].from_budget("1/2", embedding_dim=32, vocab_size=20_000)
    for family in (scheme.encoder.hashes, scheme.router):
        expected = torch_buckets(torch.tensor(EXTREMES), family.coefficients, family.num_buckets)
        assert torch.equal(family(torch.tensor(EXTREMES)), expected)


@pytest.mark.parametrize("name", HASHED)
def test_a_scheme_saved_before_ids_were_mixed_hashes_as_it_did(name, tmp_path):
    scheme = SCHEMES[name].from_budget("1/2", embedding_dim=8, vocab_size=200)
    assert scheme.config["mixed"] is True
    save_scheme(scheme, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["arguments"]["mixed"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    old, ids = load_scheme(tmp_path), torch.arange(200)
    family = HashFamily(scheme.hashes.num_hashes, scheme.num_rows, scheme.seed)
    assert torch.equal(old.hashes(ids), torch_buckets(ids, family.coefficients, scheme.num_rows))
    assert not torch.equal(old(ids), scheme(ids))
    save_scheme(old, tmp_path / "again")
    assert torch.equal(load_scheme(tmp_path / "again")(ids), old(ids))

import io
import json
import math
import subprocess
import sys
from collections import Counter

import pytest
import torch

from tableless.cli.inspect import render_encodings, save_encodings_picture
from tableless.embedding import HashFamily, diagnostics, paper_encodings, to_ids
from tableless.embedding.diagnostics import (
    count_colliding_ids,
    mean_distances,
    measure_encoding,
    measure_encodings,
    sample_pairs,
    spread,
)
from tableless.embedding.encoders import DenseHashEncoder
from tableless.embedding.hashing import torch_buckets
from tableless.embedding.paper_encodings import DenseEncoding, OneHotEncoding

NUM_IDS = 20_000
QUARTER_ENTROPY = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))


@pytest.fixture(scope="module")
def reports():
    return {report.name: report for report in measure_encodings(NUM_IDS, num_hashes=256)}


def table(rows):
    """An encoder that looks codes up, so that a test can write them down."""
    codes = torch.tensor(rows)
    return lambda ids: codes[ids]


def dense(change=lambda codes: codes):
    """Dense hash codes with something done to them."""
    return DenseEncoding("changed", lambda seed: lambda ids: change(DenseHashEncoder(128, seed=seed)(ids)),
                         num_values=1_000_000, low=-1.0, num_draws=3)  # fmt: skip


def verdicts(report):
    return report.unique, report.equally_similar, report.high_dimensional, report.high_entropy


# What the paper says


def test_the_verdicts_of_table_2_come_out_in_its_order(reports):
    yes, no = True, False
    assert [(name, *verdicts(report)) for name, report in reports.items()] == [
        ("one-hot", yes, yes, yes, no),
        ("one-hot hash", no, yes, yes, no),
        ("double one-hot hash", no, yes, yes, no),
        ("binary", yes, no, no, yes),
        ("identity", yes, no, no, yes),
        ("dense hash", yes, yes, yes, yes),
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_verdicts_do_not_hang_on_the_seed(seed):
    assert [verdicts(report) for report in measure_encodings(2000, num_hashes=128, seed=seed)] == [
        (True, True, True, False),
        (False, True, True, False),
        (False, True, True, False),
        (True, False, False, True),
        (True, False, False, True),
        (True, True, True, True),
    ]


def test_codes_are_as_long_as_the_paper_says(reports):
    lengths = [report.code_dim for report in reports.values()]
    assert lengths == [NUM_IDS, NUM_IDS, 2 * NUM_IDS, math.ceil(math.log2(NUM_IDS)), 1, 256]


def test_collisions_are_as_many_as_appendix_a_expects(reports):
    assert reports["one-hot hash"].colliding_draws == 1.0
    assert reports["one-hot hash"].colliding_ids == pytest.approx(1 - 1 / math.e, abs=0.15)  # less even in a row
    # 1 - e^(-1/2) of the draws, and 20 draws scatter around it with a standard deviation of 0.11
    assert reports["double one-hot hash"].colliding_draws == pytest.approx(1 - math.exp(-0.5), abs=0.35)
    assert 0 < reports["double one-hot hash"].colliding_ids < 10 / NUM_IDS


def test_numbers_in_a_row_would_hide_that_double_hashing_collides():
    families = [HashFamily(2, NUM_IDS, seed) for seed in range(20)]
    in_a_row = torch.arange(NUM_IDS)
    strings = to_ids([str(number) for number in range(NUM_IDS)])
    assert sum(count_colliding_ids(family, in_a_row) > 0 for family in families) == 0
    assert 4 <= sum(count_colliding_ids(family, strings) > 0 for family in families) <= 13
    assert count_colliding_ids(HashFamily(1, NUM_IDS), strings) == pytest.approx((1 - 1 / math.e) * NUM_IDS, rel=0.03)


def test_entropies_are_those_of_appendix_a(reports):
    p = 1 / NUM_IDS
    one_hot = reports["one-hot"]
    assert one_hot.mean_entropy == pytest.approx(-p * math.log2(p) - (1 - p) * math.log2(1 - p))
    assert one_hot.lowest_entropy == pytest.approx(one_hot.mean_entropy)
    assert reports["double one-hot hash"].constant_dims == pytest.approx(2 * NUM_IDS / math.e, rel=0.4)  # empty buckets
    assert reports["identity"].mean_entropy > 0.9999
    assert reports["dense hash"].mean_entropy > 0.99


def test_distances_are_those_of_appendix_a(reports):
    assert reports["one-hot"].mean_distance == pytest.approx(math.sqrt(2))
    assert reports["double one-hot hash"].mean_distance == pytest.approx(2, rel=1e-3)
    assert reports["dense hash"].mean_distance == pytest.approx(math.sqrt(256 * 2 / 3), rel=0.02)


# Broken encoders are caught


def test_an_encoder_that_is_sound_passes():
    assert verdicts(measure_encoding(dense(), torch.arange(2000))) == (True, True, True, True)


def test_one_prime_for_all_hashes_is_caught():
    coefficients = HashFamily(128).coefficients.clone()
    prime = int(coefficients[:, 3].min())
    coefficients %= prime
    coefficients[:, 3] = prime
    ids = torch.cat([torch.arange(500), torch.arange(500) + prime])
    shared = DenseEncoding("one prime", lambda _: lambda ids: torch_buckets(ids, coefficients, 1000) / 999,
                           num_values=1000, num_draws=1)  # fmt: skip
    report = measure_encoding(shared, ids)
    assert not report.unique
    assert report.colliding_draws == 1.0
    assert measure_encoding(dense(), ids).unique


def test_codes_that_are_all_equal_are_caught():
    report = measure_encoding(dense(torch.ones_like), torch.arange(500))
    assert verdicts(report) == (False, False, True, False)
    assert report.colliding_ids == 1.0
    assert report.mean_distance == report.distance_spread == report.mean_entropy == 0.0


def test_a_single_constant_coordinate_is_caught():
    report = measure_encoding(dense(lambda codes: codes.index_fill(-1, torch.tensor(7), 0.5)), torch.arange(2000))
    assert verdicts(report) == (True, True, True, False)
    assert report.constant_dims == 1
    assert report.lowest_entropy == 0.0


def test_codes_outside_their_range_are_caught():
    """As the signed `%` of C makes them: half the buckets negative, codes in [-3, 1]."""
    signed = dense(lambda codes: torch.where(codes.flip(-1) > 0, codes, codes - 2))
    assert not measure_encoding(signed, torch.arange(5000)).high_entropy


def test_codes_in_which_neighbours_are_close_are_caught():
    drifting = dense(lambda codes: codes.cumsum(0) / math.sqrt(len(codes)))
    assert not measure_encoding(drifting, torch.arange(3000)).equally_similar


# Worked by hand


@pytest.mark.parametrize(
    ("codes", "colliding"),
    [
        ([[1.0], [2.0], [3.0]], 0),
        ([[1.0], [2.0], [1.0]], 2),
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], 0),
        ([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], 3),
        ([[5, 6, 7], [5, 6, 8], [5, 6, 7], [5, 6, 8]], 4),
        ([[0.0], [-0.0]], 2),
    ],
)
def test_collisions_of_codes_written_down(codes, colliding):
    assert count_colliding_ids(table(codes), torch.arange(len(codes))) == colliding


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
def test_collisions_agree_with_a_slow_count_whatever_the_chunk(chunk, monkeypatch):
    for module in (diagnostics, paper_encodings):
        monkeypatch.setattr(module, "NUMBERS_AT_A_TIME", chunk)
    for seed in range(5):
        codes = torch.randint(0, 3, (60, 4), generator=torch.Generator().manual_seed(seed))
        counts = Counter(map(tuple, codes.tolist()))
        assert count_colliding_ids(lambda ids, codes=codes: codes[ids], torch.arange(60)) == sum(
            count for count in counts.values() if count > 1
        )


def test_entropies_of_dense_codes_written_down():
    codes = table([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    shares, constant = DenseEncoding("bits", lambda _: codes, num_values=2).entropies(0, torch.arange(4))
    assert shares.tolist() == pytest.approx([1.0, QUARTER_ENTROPY, 0.0])
    assert constant == 1


def test_entropies_of_one_hot_codes_written_down():
    encoding = OneHotEncoding("hashed", lambda _: table([[0], [0], [1], [3]]), num_buckets=4)
    shares, constant = encoding.entropies(0, torch.arange(4))
    assert shares.tolist() == pytest.approx([1.0, QUARTER_ENTROPY, 0.0, QUARTER_ENTROPY])
    assert constant == 1


@pytest.mark.parametrize("chunk", [1, 100, 10_000])
def test_values_are_gathered_into_bins_that_the_ids_can_fill(chunk, monkeypatch):
    for module in (diagnostics, paper_encodings):
        monkeypatch.setattr(module, "NUMBERS_AT_A_TIME", chunk)
    ids = torch.arange(640)  # 64 to each of 10 bins
    even = DenseEncoding("even", lambda _: lambda ids: ids.unsqueeze(-1) / 639, num_values=640)
    lower = DenseEncoding("lower half", lambda _: lambda ids: (ids // 2).unsqueeze(-1) / 639, num_values=640)
    assert even.entropies(0, ids)[0].tolist() == pytest.approx([1.0])
    assert lower.entropies(0, ids)[0].tolist() == pytest.approx([math.log(5) / math.log(10)])


def test_distances_of_codes_written_down():
    pairs = torch.tensor([[0, 1], [0, 2], [1, 1]])
    encoding = DenseEncoding("plane", lambda _: table([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), num_values=5)
    assert encoding.distances(0, pairs).tolist() == [5.0, 1.0, 0.0]
    double = OneHotEncoding("double", lambda _: table([[0, 0], [1, 2], [0, 1]]), num_buckets=3)
    assert double.distances(0, pairs).tolist() == pytest.approx([2.0, math.sqrt(2), 0.0])


def test_one_hot_codes_written_out_give_the_same_figures():
    ids = torch.arange(40)
    kept = OneHotEncoding("kept as positions", lambda seed: HashFamily(2, 30, seed), num_buckets=30)
    out = DenseEncoding(
        "written out",
        lambda seed: lambda ids: torch.nn.functional.one_hot(HashFamily(2, 30, seed)(ids), 30).flatten(-2).float(),
        num_values=2,
        num_draws=kept.num_draws,
    )
    positions, dense = measure_encoding(kept, ids).as_dict(), measure_encoding(out, ids).as_dict()
    assert positions.pop("name") != dense.pop("name")
    assert positions == pytest.approx(dense)


def test_the_spread_is_taken_after_averaging_over_draws():
    # two pairs whose distances are (1, 3) in one draw and (3, 1) in the other: equal on average
    near_far, far_near = table([[0.0], [1.0], [-3.0]]), table([[0.0], [3.0], [-1.0]])
    encoding = DenseEncoding("drawn", lambda seed: (near_far, far_near)[seed], num_values=7)
    pairs = torch.tensor([[0, 1], [0, 2]])
    assert spread(encoding.distances(0, pairs)) == 0.5
    assert mean_distances(encoding, pairs, range(2)).tolist() == [2.0, 2.0]
    assert spread(mean_distances(encoding, pairs, range(2))) == 0.0


@pytest.mark.parametrize("num_ids", [2, 3, 10, 1000, 100_000])
def test_pairs_are_neighbours_then_a_power_of_two_apart_then_anything(num_ids):
    pairs = sample_pairs(num_ids, per_kind=100)
    gaps = pairs[:, 1] - pairs[:, 0]
    assert pairs.min() >= 0
    assert pairs.max() < num_ids
    assert (gaps != 0).all()
    assert set(gaps[:100].tolist()) == {1}
    assert set(gaps[100:200].tolist()) == {2**power for power in range((num_ids - 1).bit_length())}


# Around the measurement


@pytest.mark.parametrize("num_ids", [2, 3, 10])
def test_a_handful_of_ids_is_measured_too(num_ids):
    reports = measure_encodings(num_ids, num_hashes=8)
    assert [report.num_ids for report in reports] == [num_ids] * 6
    assert reports[0].unique


@pytest.mark.parametrize("num_ids", [1, 0, -3, 2**29 + 1])
def test_a_number_of_ids_that_cannot_be_compared_is_refused(num_ids):
    with pytest.raises(ValueError, match=rf"num_ids is {num_ids}; it must lie in \[2, 2\^29\]"):
        measure_encodings(num_ids)


def test_a_report_survives_json(reports):
    for report in reports.values():
        plain = report.as_dict()
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain
        assert [plain[name] for name in ("unique", "equally_similar", "high_dimensional", "high_entropy")] == list(
            verdicts(report)
        )


def test_the_same_seed_gives_the_same_figures():
    assert measure_encodings(300, num_hashes=16, seed=5) == measure_encodings(300, num_hashes=16, seed=5)
    assert measure_encodings(300, num_hashes=16, seed=5) != measure_encodings(300, num_hashes=16, seed=6)


def test_the_table_shows_every_verdict_and_fits_a_terminal(reports):
    from rich.console import Console

    console = Console(width=80, file=io.StringIO())
    console.print(render_encodings(reports.values()))
    text = console.file.getvalue()
    rows, caption = text.split("Measured on the codes of 20,000 ids")
    assert "…" not in rows
    assert (rows.count("✓"), rows.count("✗")) == (15, 9)
    for name, report in reports.items():
        (row,) = [line for line in rows.splitlines() if line.strip().startswith(f"{name}  ")]
        assert [mark == "✓" for mark in row if mark in "✓✗"] == list(verdicts(report))
        assert f"{report.code_dim:,}" in row
    assert "spread over pairs" in caption


def test_the_picture_is_a_png(tmp_path):
    save_encodings_picture(tmp_path / "codes", num_ids=300, num_hashes=15)
    assert (tmp_path / "codes").read_bytes().startswith(b"\x89PNG")


def test_a_missing_package_is_named_with_the_line_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "rich.table", None)
    with pytest.raises(ImportError, match=r"matplotlib: pip install 'tableless\[cli\]'"):
        save_encodings_picture(tmp_path / "codes.png")
    with pytest.raises(ImportError, match=r"rich: pip install 'tableless\[cli\]'"):
        render_encodings([])


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read the Linux way")
def test_measuring_needs_far_less_memory_than_all_codes():
    program = """
import dataclasses, resource, torch
from tableless.embedding.diagnostics import measure_encoding
from tableless.embedding.paper_encodings import paper_encodings
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
dense_hash = dataclasses.replace(paper_encodings(25_000)[-1], num_draws=1)
measure_encoding(dense_hash, torch.arange(100))  # loads the compiled kernels, which is not what we measure
before = peak()
measure_encoding(dense_hash, torch.arange(25_000))
print(peak() - before)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    all_codes = 25_000 * 1024 * 4 / 2**20  # MB
    assert float(result.stdout) < all_codes / 2

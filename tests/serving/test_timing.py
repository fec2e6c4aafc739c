import pytest
import torch

from tableless import DeepHashEmbedding
from tableless.cli.bench import render_timings
from tableless.embedding.deep_hash import PAPER_NETWORK
from tableless.embedding.tables import FullEmbedding
from tableless.kernels.resources import on_threads
from tableless.serving.timing import (
    Spread,
    bare_products,
    describe_machine,
    measure_lookups,
    time_alternately,
    zipf_ids,
)

TINY = {"vocab_size": 2000, "embedding_dim": 8, "batch_size": 10, "queries": 40, "repetitions": 2}


def test_every_way_of_looking_up_is_timed():
    report = measure_lookups(**TINY, budget="1/2 parameters")
    names = [time.name for time in report.times]
    assert names[:5] == ["full", "hash-embedding", "nn.Linear layers alone", "dhe as published", "dhe, fast"]
    assert "dhe, fast, hot" in names
    assert names[-1] == "dhe, fast, 1 expert"
    assert ("dhe, fast, int8" in names) != ("int8" in report.left_out)
    assert report.queries == 40
    for time in report.times:
        assert time.seconds_per_million.low <= time.seconds_per_million.median <= time.seconds_per_million.high
        assert time.num_parameters > 0
    sizes = {time.name: time for time in report.times}
    assert sizes["full"].of_full == sizes["nn.Linear layers alone"].of_products == Spread(1, 1, 1)
    assert sizes["full"].num_parameters == 16_000
    full = FullEmbedding(8, vocab_size=2000)
    assert sizes["full"].megabytes == full.num_bytes / 1e6
    assert full.num_bytes >= 64_000
    published = DeepHashEmbedding.from_budget(
        "1/2 parameters", embedding_dim=8, vocab_size=2000, seed=0, **PAPER_NETWORK
    )
    assert sizes["dhe as published"].megabytes == sizes["dhe, fast"].megabytes == published.num_bytes / 1e6
    assert sizes["dhe, fast, hot"].megabytes == pytest.approx(sizes["dhe, fast"].megabytes + 20 * 8 * 4 / 1e6)
    if "dhe, fast, int8" in sizes:
        assert sizes["dhe, fast, int8"].megabytes < sizes["dhe, fast"].megabytes


def test_a_rival_that_the_budget_is_too_small_for_is_left_out_and_named():
    report = measure_lookups(**TINY, budget="1/5 parameters")
    assert "too small" in report.left_out["hash-embedding"]
    assert "hash-embedding" not in [time.name for time in report.times]


def test_the_table_says_what_was_measured_and_where():
    report = measure_lookups(**TINY)
    table = render_timings(report)
    assert describe_machine().partition("(")[0].strip() in table.caption
    assert "2,000 ids" in table.caption
    assert next(iter(table.columns[2].cells)) == "0.1"
    assert (
        next(iter(table.columns[3].cells)) == f"{report.times[0].megabytes * 1e6 / 2000:.1f}"
    )  # 32 and the map of ids
    assert table.row_count == len(report.times) >= 6  # one more where int8 is supported


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("queries", 19, "at least 20"),
        ("batch_size", 0, "batch_size is 0"),
        ("vocab_size", 0, "vocab_size is 0"),
        ("repetitions", 0, "repetitions is 0"),
        ("threads", 0, "at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(argument, value, message):
    with pytest.raises(ValueError, match=message):
        measure_lookups(**{**TINY, argument: value})


def test_the_number_of_threads_is_put_back_whatever_happens():
    before = torch.get_num_threads()
    report = measure_lookups(**TINY, threads=before + 1)
    assert f"{before + 1} thread(s)" in report.machine
    assert torch.get_num_threads() == before
    with pytest.raises(KeyError), on_threads(before + 1):
        raise KeyError
    assert torch.get_num_threads() == before


def test_tasks_take_turns_after_one_call_that_is_not_counted():
    calls = []
    seconds = time_alternately({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repetitions=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_taken_within_a_repetition():
    assert Spread.of_ratios([1.0, 10.0, 6.0], [1.0, 5.0, 2.0]) == Spread(median=2, low=1, high=3)


def test_zipf_traffic_asks_for_the_first_ids_most():
    ids = zipf_ids(20_000, 1000, seed=3)
    counts = torch.bincount(ids, minlength=1000)
    assert ids.dtype == torch.int64
    assert len(counts) == 1000
    assert counts[0] / counts[1] == pytest.approx(2**1.1, rel=0.15)
    assert torch.equal(ids, zipf_ids(20_000, 1000, seed=3))


def test_the_bare_products_are_the_layers_of_the_network():
    scheme = DeepHashEmbedding(8, width=6, depth=2, num_hashes=16)
    layers = bare_products(scheme.decoder)
    assert [tuple(layer.weight.shape) for layer in layers] == [(6, 16), (6, 6), (8, 6)]
    assert layers[0] is scheme.decoder.hidden[0].linear

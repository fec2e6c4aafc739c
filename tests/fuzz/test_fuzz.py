"""A little of what `python -m tests.fuzz` does by the million."""

import polars as pl
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableless.data.interactions import DataError
from tests.data.reading.small_files import read

from .configs import fuzz_configs
from .ids import fuzz_ids
from .readers import fuzz_readers
from .slow_ids import slow_id, slow_xxh64

FEW = settings(deadline=None, suppress_health_check=list(HealthCheck))
CASES = st.randoms(use_true_random=False)  # hypothesis decides what they draw, and finds the simplest that fails


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@settings(FEW, max_examples=150)
@given(CASES)
def test_ids_are_those_of_a_second_slow_implementation_or_refused(folder, case):
    fuzz_ids(case, folder)


@settings(FEW, max_examples=80)
@given(CASES)
def test_files_are_read_as_they_were_written_or_refused(folder, case):
    fuzz_readers(case, folder)


@settings(FEW, max_examples=80)
@given(CASES)
def test_configs_are_loaded_or_refused(folder, case):
    fuzz_configs(case, folder)


@given(st.binary(max_size=200))
def test_the_slow_hash_is_xxh64(data):
    assert slow_xxh64(data) == xxhash.xxh64_intdigest(data)


def test_the_slow_ids_are_those_of_the_specification():
    assert slow_id("user_42") == 4815382341779711111
    assert slow_id("東京") == -7688540905579211692
    assert slow_id(2**64 - 1) == -1


def test_a_parquet_file_with_any_byte_changed_is_refused_or_has_all_its_rows(folder):
    """polars ends early, and says nothing, where a page cannot be decoded."""
    path = folder / "rows.parquet"
    pl.DataFrame({"user": range(40), "item": [f"i{row}" for row in range(40)]}).write_parquet(path)
    good = path.read_bytes()
    refused = 0
    for place in [*range(4, 90), *range(len(good) // 2, len(good) - 8, 7)]:
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        try:
            assert len(read(path)[0]) == 40
        except DataError:
            refused += 1
    assert refused > 10

import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tableless import to_ids

SPEC_STRINGS = {
    "": -1205034819632174695,
    "7": 1750302349509622455,
    "user_42": 4815382341779711111,
    "東京": -7688540905579211692,
}


def reference(text: str | bytes) -> int:
    raw = text.encode() if isinstance(text, str) else text
    unsigned = xxhash.xxh64(raw, seed=0).intdigest()
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def test_strings_have_the_ids_of_the_specification():
    assert to_ids(list(SPEC_STRINGS)).tolist() == list(SPEC_STRINGS.values())


@pytest.mark.parametrize("value", [0, 1, -1, 2**31, 2**63 - 1, -(2**63)])
def test_an_integer_is_its_own_id(value):
    assert to_ids([value]).tolist() == [value]
    assert to_ids(value).shape == ()


def test_integers_from_two_to_the_63_wrap_to_their_bit_pattern():
    assert to_ids([2**64 - 1, 2**63, 5]).tolist() == [-1, -(2**63), 5]
    assert to_ids(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [-1]
    assert to_ids(torch.tensor([2**64 - 1], dtype=torch.uint64)).tolist() == [-1]
    assert to_ids(pl.Series([2**64 - 1], dtype=pl.UInt64)).tolist() == [-1]


def test_the_integer_seven_and_the_string_seven_are_different_ids():
    assert to_ids(7) != to_ids("7")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
def test_every_integer_type_of_numpy_torch_and_polars_is_taken(dtype):
    array = np.array([[1, 2], [3, 4]], dtype=dtype)
    assert to_ids(array).tolist() == [[1, 2], [3, 4]]
    assert to_ids(torch.from_numpy(array)).dtype == torch.int64
    assert to_ids(pl.Series(array.ravel())).tolist() == [1, 2, 3, 4]


STRING_COLUMNS = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "numpy objects": lambda values: np.array(values, dtype=object),
    "polars": lambda values: pl.Series(values, dtype=pl.String),
    "polars categorical": lambda values: pl.Series(values, dtype=pl.Categorical),
    "pyarrow": lambda values: pa.array(values, type=pa.string()),
    "pyarrow chunks": lambda values: pa.chunked_array([values[:3], values[3:]], type=pa.large_string()),
    "pyarrow dictionary": lambda values: pa.array(values, type=pa.string()).dictionary_encode(),
}


@pytest.mark.parametrize("column", STRING_COLUMNS.values(), ids=STRING_COLUMNS)
@pytest.mark.parametrize("num_distinct", [0, 1, 3, 5_000])
def test_a_string_column_of_any_kind_and_repetition_has_the_same_ids(column, num_distinct):
    values = [f"käse {i % num_distinct}" for i in range(10_000)] if num_distinct else []
    assert to_ids(column(values)).tolist() == [reference(value) for value in values]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_strings_have_the_id_of_their_utf8_bytes(values):
    expected = [reference(value) for value in values]
    assert to_ids(values).tolist() == expected
    assert to_ids([value.encode() for value in values]).tolist() == expected
    assert to_ids(pl.Series([value.encode() for value in values], dtype=pl.Binary)).tolist() == expected


@given(st.lists(st.integers(-(2**63), 2**64 - 1)))
def test_any_integers_have_their_twos_complement(values):
    assert to_ids(values).tolist() == [(value + 2**63) % 2**64 - 2**63 for value in values]


def test_strings_have_the_same_ids_without_polars():
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'polars' else real(name, *rest)\n"
        f"from tableless import to_ids; assert to_ids({list(SPEC_STRINGS)!r}).tolist() == "
        f"{list(SPEC_STRINGS.values())!r}"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stderr == b""


@pytest.mark.parametrize(
    ("values", "named", "position"),
    [
        ([3, None], "None", 1),
        ([3, float("nan")], "nan", 1),
        ([3, 4, 1.5], "1.5", 2),
        ([3, 2**64], str(2**64), 1),
        ([-(2**63) - 1], str(-(2**63) - 1), 0),
        ([3, "a"], "'a'", 1),
        (["a", 3], "3", 1),
        (["a", b"a"], "b'a'", 1),
        (["a", None], "None", 1),
        ([b"a", None], "None", 1),
        ([True], "True", 0),
        (["a", "\ud800"], r"'\\ud800'", 1),
        (np.array([1.5]), "1.5", 0),
        (np.array([np.nan]), "nan", 0),
        (np.array(["a", None], dtype=object), "None", 1),
        (torch.tensor([0.5]), "0.5", 0),
        (pl.Series(["a", "b", None]), "None", 2),
        (pl.Series([1, None]), "None", 1),
        (pl.Series([1.5]), "1.5", 0),
        (pl.Series([True]), "True", 0),
        (pa.array(["a", None]), "None", 1),
        ([[1, 2], [3, 4]], "[1, 2]", 0),
    ],
)
def test_a_value_that_cannot_be_an_id_is_named_with_its_position(values, named, position):
    with pytest.raises(ValueError, match=rf"{named.replace('[', chr(92) + '[')}.* at position {position} "):
        to_ids(values)


@pytest.mark.parametrize("values", [None, 1.5, {"a": 1}, {1, 2}, object()])
def test_what_is_no_ordered_column_is_refused(values):
    with pytest.raises(ValueError, match="must be integers, strings or bytes"):
        to_ids(values)

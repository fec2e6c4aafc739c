"""Raw ids of every kind, good and bad, in every container: `to_ids` must say what slow_ids says, or refuse."""

import enum
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pyarrow as pa
import torch

from tableless import to_ids

from .slow_ids import slow_id


class Text(str):
    """A string all the same."""


class Number(enum.IntEnum):
    SEVEN = 7


def fuzz_ids(random: Random, _: Path) -> int:
    """One column; returns how many values it had."""
    kind = random.choice(["integers", "strings", "bytes", "mixed"])
    values = [_value(random, kind) for _ in range(random.choice([0, 1, 1, 2, 5, 200]))]
    column = _column(random, kind, values)
    try:
        expected = _expected(values)
    except ValueError:
        expected = None
    try:
        found, refusal = to_ids(column), ""
    except ValueError as error:
        found, refusal = None, str(error)
    if found is None:
        assert expected is None, f"{column!r} was refused: {refusal}"
        assert "\n" not in refusal, f"more than a line: {refusal}"
    else:
        assert found.dtype == torch.int64
        assert found.reshape(-1).tolist() == expected, f"{column!r} became {found.tolist()} and not {expected}"
    return max(1, len(values))


def _expected(values: list) -> list[int]:
    kinds = {_kind(value) for value in values}
    if len(kinds) > 1 or None in kinds:
        raise ValueError("several kinds, or something that is no id")
    return [slow_id(int(value) if kinds == {int} else value) for value in values]


def _kind(value: object) -> type | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, np.integer):
        return int
    return next((kind for kind in (int, str, bytes) if isinstance(value, kind)), None)


def _column(random: Random, kind: str, values: list) -> object:
    """Values in some container."""
    makers = [lambda: values, lambda: tuple(values), lambda: iter(values)]
    if values:
        makers.append(lambda: np.array([*values, None], dtype=object)[:-1])
    if kind == "strings" and all(map(_is_unicode, values)):
        plain = [str(value) for value in values]
        makers += [
            lambda: pl.Series(plain, dtype=pl.String),
            lambda: pl.Series(plain, dtype=pl.Categorical),
            lambda: pa.array(plain, type=pa.string()),
            lambda: pa.array(plain, type=pa.large_string()).dictionary_encode(),
        ]
        if values and not any(value.endswith("\0") for value in plain):  # which numpy drops
            makers += [lambda: np.array(plain), lambda: list(np.array(plain))]
    if kind == "bytes":
        plain_bytes = [bytes(value) for value in values]
        makers += [lambda: pl.Series(plain_bytes, dtype=pl.Binary), lambda: pa.array(plain_bytes, type=pa.binary())]
    if kind == "integers":
        integers = [int(value) for value in values]
        for least, most, types in (
            (-(2**63), 2**63, (np.int64, torch.int64, pl.Int64, pa.int64())),
            (0, 2**64, (np.uint64, torch.uint64, pl.UInt64, pa.uint64())),
            (-(2**31), 2**31, (np.int32, torch.int32, pl.Int32, pa.int32())),
            (0, 2**8, (np.uint8, torch.uint8, pl.UInt8, pa.uint8())),
        ):
            if all(least <= value < most for value in integers):
                of_numpy, of_torch, of_polars, of_arrow = types
                makers += [
                    lambda dtype=of_numpy: np.array(integers, dtype=dtype),
                    lambda dtype=of_torch: torch.tensor(integers, dtype=dtype),
                    lambda dtype=of_polars: pl.Series(integers, dtype=dtype),
                    lambda dtype=of_arrow: pa.array(integers, type=dtype),
                ]
    if len(values) == 1 and _kind(values[0]) is not None:
        makers.append(lambda: values[0])
    return random.choice(makers)()


def _value(random: Random, kind: str) -> object:
    if kind == "mixed":
        no_ids = [None, float("nan"), 1.5, True, np.True_, Decimal(1), object(), [1], 10**5000, -(2**63) - 1, 2**64, {}]
        kind = random.choice(["integers", "strings", "bytes", "odd"])
        if kind == "odd":
            return random.choice(no_ids)
    if kind == "integers":
        near = random.choice([0, 2**8, 2**31, 2**32, 2**63, 2**64]) * random.choice([1, 1, -1])
        value = random.choice([near + random.randrange(-3, 4), random.randrange(-(2**63), 2**64)])
        if random.randrange(8) == 0:
            return Number.SEVEN if not -(2**63) <= value < 2**63 else np.int64(value)
        return value
    if kind == "strings":
        odd = ["ab7", "äß東🎉\0\n ,\"'", "\ud800\udfff"]
        characters = random.choice(odd if random.randrange(9) == 0 else ["x1", "é"])
        text = "".join(random.choice(characters) for _ in range(random.choice([0, 1, 3, 8, 31, 32, 33, 100])))
        return random.choice([text, text, text, Text(text)])
    return bytes(random.randrange(256) for _ in range(random.choice([0, 1, 3, 4, 7, 8, 12, 31, 32, 33, 64, 100])))


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)

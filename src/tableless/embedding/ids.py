"""Raw ids → ids: strings, bytes and integers of any kind become int64, the same on every machine.

The rules are those of docs/encoding-spec.md: an integer is its 64-bit two's-complement pattern; a string (its UTF-8
bytes) or a bytes value is its XXH64 with seed 0, read as int64. A column has one kind or the other.

`find` goes on from there: it tells where in a sorted list of ids an id stands.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    import polars as pl

# If more than this share of a column is distinct, every value is hashed. To find the distinct values first would cost
# more time than to hash the few repeated ones again.
_WORTH_REDUCING = 0.5
_LONGEST_SHOWN = 200  # characters of a value in an error message
# A list with at most this many strings is hashed one by one: that is done before polars has been imported.
_FEW = 20_000


def to_ids(values: Any) -> Tensor:
    """Turn raw ids into the int64 ids that every scheme takes.

    An integer stays the same number. A string or a bytes value becomes its 64-bit hash (XXH64). The same value gives
    the same id on every machine, so no vocabulary is needed.

    Args:
        values: Integers, strings or bytes, all of one kind: a single value, a list or another iterable, a numpy array,
            a torch tensor, a polars or pandas Series, or a pyarrow Array.

    Returns:
        The ids, as an int64 tensor with the shape of `values`.

    Raises:
        ValueError: A value cannot be an id: None, NaN, a fraction, a boolean, an integer outside [-2^63, 2^64), or a
            string among integers. The message names the first such value and its position.

    Example:
        ```python
        from tableless import to_ids

        ids = to_ids(["user_42", "user_43", "someone new"])
        print(ids.shape, to_ids([7, 8]).tolist())  # torch.Size([3]) [7, 8]
        ```
    """
    if isinstance(values, Tensor):
        return _from_tensor(values)
    if isinstance(values, (str, bytes, int)):
        return _from_list([values]).reshape(())
    library, kind = type(values).__module__.partition(".")[0], type(values).__name__
    if library == "polars" and kind == "Series":
        return _from_polars(values)
    if library == "pyarrow" and kind.endswith("Array"):
        if not importlib.util.find_spec("polars"):
            return _from_list(values.to_pylist())
        import polars as pl

        return _from_polars(pl.Series(values=pl.from_arrow(values)))
    if library == "pandas":
        values = values.to_numpy()
    if isinstance(values, (np.ndarray, np.generic)):
        return _from_numpy(np.asarray(values))
    is_one_value = library in ("polars", "pyarrow") or isinstance(values, (bytearray, memoryview))
    if isinstance(values, Iterable) and not isinstance(values, (dict, set, frozenset)) and not is_one_value:
        return _from_list(list(values))
    raise ValueError(f"ids must be integers, strings or bytes in an ordered column, not {kind}")


def _from_tensor(values: Tensor) -> Tensor:
    if values.dtype == torch.uint64:
        return values.view(torch.int64)
    if values.dtype.is_floating_point or values.dtype.is_complex or values.dtype == torch.bool:
        raise _refusal(values.flatten()[0].item() if values.numel() else values.dtype, 0)
    return values.to(torch.int64)


def _from_numpy(values: NDArray[Any]) -> Tensor:
    if values.dtype.kind in "iu":
        wrapped = np.ascontiguousarray(values.astype(np.int64))  # uint64 wraps, as specified
        return torch.from_numpy(wrapped).reshape(values.shape)  # numpy made a list of one out of a single number
    if values.dtype.kind in "OUST":
        return _from_list(values.ravel().tolist()).reshape(values.shape)
    raise _refusal(values.flat[0] if values.size else values.dtype, 0)


def _from_polars(values: pl.Series) -> Tensor:
    import polars as pl

    if not len(values) and values.dtype in (pl.String, pl.Binary, pl.Categorical, pl.Enum, pl.Null, pl.Object):
        return torch.empty(0, dtype=torch.int64)
    if values.null_count():
        raise _refusal(None, int(values.is_null().arg_max() or 0))
    dtype = values.dtype
    if dtype in (pl.Int128, pl.UInt128):
        return _from_list(values.to_list())
    if dtype.is_integer():
        return _from_numpy(values.to_numpy())
    if isinstance(dtype, (pl.Categorical, pl.Enum)):
        return torch.from_numpy(_hash_categories(values))
    if dtype == pl.String:
        return torch.from_numpy(_hash_column(values))
    if dtype == pl.Binary:
        return torch.from_numpy(_hash_bytes(values.to_list()))
    if dtype == pl.Object:
        return _from_list(values.to_list())
    raise _refusal(values[0] if len(values) else dtype, 0)


def _from_list(values: list[Any]) -> Tensor:
    kinds = set(map(type, values))
    if not kinds:
        return torch.empty(0, dtype=torch.int64)
    if all(issubclass(kind, str) for kind in kinds):  # also numpy's strings, which numpy would read as numbers below
        return torch.from_numpy(_hash_strings(values))
    if all(issubclass(kind, bytes) for kind in kinds):
        return torch.from_numpy(_hash_bytes(values))
    integer = all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds)
    if not integer:
        _refuse_first_unlike(values)
    try:
        return torch.from_numpy(np.fromiter(values, np.int64, len(values)))
    except OverflowError:  # a value above 2^63 - 1: either a uint64, which wraps, or a mistake
        return torch.from_numpy(np.fromiter(map(_wrap, values, range(len(values))), np.int64, len(values)))


def _wrap(value: int, position: int) -> int:
    if not -(2**63) <= value < 2**64:
        raise _refusal(value, position)
    return (int(value) + 2**63) % 2**64 - 2**63


def _hash_strings(values: list[str]) -> NDArray[np.int64]:
    """Hash a list; by polars where it is installed, which finds distinct values several times faster than a dict."""
    try:
        if len(values) > _FEW and importlib.util.find_spec("polars"):
            import polars as pl

            return _hash_column(pl.Series(values=values, dtype=pl.String))
        return _hash_bytes(map(str.encode, values), len(values))
    except UnicodeEncodeError:
        for position, value in enumerate(values):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _refusal(value, position) from None
        raise


def _hash_column(values: pl.Series) -> NDArray[np.int64]:
    """Hash a string column. If a sample shows many repeats, only the distinct values are hashed."""
    import polars as pl

    sample = values.gather_every(max(1, len(values) // 10_000))
    num_distinct = 0
    if sample.n_unique() > _WORTH_REDUCING * len(sample):  # a count over the whole column is surer, and costs more
        num_distinct = values.to_frame("raw").select(pl.col("raw").approx_n_unique()).item()
    if num_distinct > _WORTH_REDUCING * len(values):
        return _hash_bytes(values.cast(pl.Binary).to_list())
    # These categories are for this column alone. Polars' default ones belong to the whole process, and would grow with
    # every column.
    return _hash_categories(values.cast(pl.Categorical(pl.Categories.random())))


def _hash_categories(values: pl.Series) -> NDArray[np.int64]:
    import polars as pl

    codes = values.to_physical().to_numpy()
    example = np.full(int(codes.max()) + 1, -1)  # for each code a position that has it; -1 if this column has none
    for start in range(0, len(codes), 1 << 16):  # values that repeat are nearly all in the first block or two
        block = codes[start : start + (1 << 16)]
        example[block] = np.arange(start, start + len(block))
        if example.min() >= 0:
            break
    present = np.flatnonzero(example >= 0)
    ids = np.empty(len(example), np.int64)
    ids[present] = _hash_bytes(values.gather(example[present]).cast(pl.String).cast(pl.Binary).to_list())
    return ids[codes]


def _hash_bytes(values: Iterable[bytes], count: int = -1) -> NDArray[np.int64]:
    if isinstance(values, Sequence):
        count = len(values)
    unsigned = np.fromiter(map(xxhash.xxh64_intdigest, values), np.uint64, count)
    return unsigned.view(np.int64)


def _refuse_first_unlike(values: list[Any]) -> None:
    """Name the first value that cannot be an id, or else the first of another kind than the one before it."""
    expected = None
    for position, value in enumerate(values):
        kind = next((kind for kind in (str, bytes, int) if isinstance(value, kind)), None)
        if isinstance(value, np.integer):
            kind = int
        if kind is None or isinstance(value, bool):
            raise _refusal(value, position)
        expected = expected or kind
        if kind is not expected:
            raise ValueError(
                f"{_shown(value)} at position {position} is {kind.__name__}, but the values before it are "
                f"{expected.__name__}; a column of ids has one kind (7 and '7' are different ids)"
            )


def _refusal(value: Any, position: int) -> ValueError:
    if isinstance(value, (float, np.floating)) and value == value:
        hint = "cast the column to int64 or to strings first, where you can see what is lost"
    elif isinstance(value, int) and not isinstance(value, bool):
        hint = "integers must lie in [-2^63, 2^64)"
    elif isinstance(value, str):
        hint = "it is not valid Unicode; pass it as bytes"
    else:
        hint = "ids are integers, strings or bytes; drop or replace it"
    return ValueError(f"{_shown(value)} at position {position} cannot be an id: {hint}")


def _shown(value: Any) -> str:
    """The value in one line, cut where it is long."""
    if isinstance(value, int) and value.bit_length() > 8 * _LONGEST_SHOWN:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to print such a number
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def parse_id(text: str, *, kind: str, side: str) -> int | str:
    """A raw id typed by a person, in the kind ("integer" or "string") that the data has; `side` is for the message."""
    if kind == "string":
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{side} ids are integers in this data; {text!r} is none") from None


def find(ids: Tensor, sorted_ids: Tensor) -> tuple[Tensor, Tensor]:
    """For each id [...]: its position in `sorted_ids` [rows], and whether it is in the list at all.

    The position of an id that is not in the list is that of some other id, so it can be used as an index too.
    """
    last = sorted_ids.shape[0] - 1
    if last < 0:
        return torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    search = _binary_search if torch.compiler.is_exporting() else torch.searchsorted
    position = search(sorted_ids, ids).clamp(max=last)
    return position, sorted_ids[position] == ids


def _binary_search(sorted_ids: Tensor, ids: Tensor) -> Tensor:
    """`torch.searchsorted` in operations that ONNX has. The loop is unrolled: one turn for each halving of the list."""
    last = sorted_ids.shape[0] - 1
    position = torch.zeros_like(ids)  # how many ids of the list are smaller, as far as we know
    step = 1 << last.bit_length()
    while step:
        candidate = (position + step).clamp(max=last + 1)
        smaller = sorted_ids[candidate - 1] < ids
        position = torch.where(smaller, candidate, position)
        step //= 2
    return position

"""Files that are right, nearly right and quite wrong: what is read is what was written, or a sentence says why not."""

import csv
import gzip
import io
import json
from pathlib import Path
from random import Random

import polars as pl

from tableless.data.interactions import DataError
from tests.data.reading.small_files import read

_WORDS = ["a", "b7", "007", "-1", "ü", "東京", "x y", "1e5", "inf", 'say "hi"', "a,b", "a;b", "tab\there", "null", "::"]


def fuzz_readers(random: Random, folder: Path) -> int:
    """One file."""
    rows = [(_user(random), _item(random), random.randrange(10**9)) for _ in range(random.randrange(1, 8))]
    content, is_readable = _file(random, rows)
    is_damaged = random.randrange(3) > 0
    if is_damaged:
        content = _damaged(random, content)
    if content[:4] != b"PAR1" and random.randrange(6) == 0:
        content = gzip.compress(content, 1)
        content = _damaged(random, content) if is_damaged and random.randrange(2) else content
    path = folder / "file"
    path.write_bytes(content)
    refusal = ""
    try:
        users, items, times = read(path)
    except DataError as error:
        refusal = str(error)
    if refusal:
        assert is_damaged or not is_readable, f"{content!r} was refused: {refusal}"
        assert "\n" not in refusal, f"more than a line: {refusal}"
        return 1
    assert len(users) == len(items)
    if is_readable and not is_damaged:
        assert list(map(str, items)) == [item for _, item, _ in rows], (content, items)
        assert times == [time for _, _, time in rows], (content, times)
    return 1


def _user(random: Random) -> str:
    return str(random.randrange(-5, 10**6))


def _item(random: Random) -> str:
    return random.choice([str(random.randrange(50)), random.choice(_WORDS)])


def _file(random: Random, rows: list) -> tuple[bytes, bool]:
    """Some rows in some format, and whether that format can hold them."""
    names = ["user_id", "item_id", "timestamp"]
    kind = random.choice(["csv", "tsv", "::", "json", "parquet", "noise"])
    if kind == "noise":
        return random.randbytes(random.randrange(200)), False
    if kind == "parquet":
        frame = pl.DataFrame(rows, schema=dict.fromkeys(names[:2], pl.String) | {"timestamp": pl.Int64}, orient="row")
        out = io.BytesIO()
        frame.write_parquet(out)
        return out.getvalue(), True
    if kind == "json":
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=random.randrange(2) == 0) for row in rows]
        return "".join(line + "\n" for line in lines).encode(), True
    if kind == "::":
        text = "".join(f"{user}::{item}::5::{time}\n" for user, item, time in rows)
        return text.encode(), False  # signs of a separator in an item are not told from one
    text_file = io.StringIO()
    end = random.choice(["\n", "\r\n"])
    writer = csv.writer(text_file, delimiter="," if kind == "csv" else "\t", lineterminator=end)
    writer.writerows([names, *rows])
    return text_file.getvalue().encode(), True


def _damaged(random: Random, content: bytes) -> bytes:
    """Cut, exchanged, doubled, and sprinkled with what means something."""
    data = bytearray(content)
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0:
                del data[place:]
            case 1:
                del data[place : place + random.randrange(20)]
            case 2:
                data[place:place] = random.choice([b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"{", b"}", b"::", b"\t"])
            case 3:
                data[place:place] = bytes(data[place : place + 30])
            case _:
                if data:
                    data[place % len(data)] = random.randrange(256)
    return bytes(data)

"""Small files, and everything that is in them."""

import gzip
import json
from dataclasses import replace

from tableless.data.reading.files import sniff
from tableless.data.reading.values import KindsChanged

ROWS = [(1, "a", 10), (2, "b", 20), (1, "c", 30)]


def write(path, text):
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(file, **given):
    """All rows of a file: users, items (raw) and times."""
    sniffed = sniff([file], **given)
    while True:
        try:
            batches = batches_of(sniffed)
        except KindsChanged as changed:
            sniffed = replace(sniffed, kinds=changed.kinds)
            continue
        return (
            [user for batch in batches for user in batch.users.tolist()],
            [item for batch in batches for item in batch.item_names.to_list()],
            None if sniffed.columns.time is None else [time for batch in batches for time in batch.times.tolist()],
        )


def batches_of(sniffed):
    return [batch for layout in sniffed.layouts for batch in sniffed.read(layout)]


def separated(separator, header=True):
    lines = [("user_id", "item_id", "timestamp")] * header + ROWS
    return "".join(separator.join(map(str, line)) + "\n" for line in lines)


def json_lines():
    return "".join(json.dumps({"user_id": u, "text": "x", "item_id": i, "timestamp": t}) + "\n" for u, i, t in ROWS)

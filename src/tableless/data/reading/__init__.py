"""Reading: files of any known format → batches of actions, as ids.

files: one look at the files decides everything that the rest needs to know, columns which columns are meant → text,
json_lines, parquet: one module for each format, which gives the rows as they stand in the file (decoding: as UTF-8) →
batches: the rows that count, as ids and names, times: as times. values has the words that all of these use.
"""

from ...extras import install_hint

try:
    import polars  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise ImportError(f"interactions are read by {missing.name}: {install_hint('data')}") from missing

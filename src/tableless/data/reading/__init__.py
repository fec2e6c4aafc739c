"""Reading: files of any known format → batches of actions, as ids.

- files: one look at the files decides everything that the rest needs to know; columns: which columns are meant.
- parquet, text_formats: the formats, which give the rows as they stand in the file. text: what text formats share.
- batches: the rows that count, as ids and names.
- values: the words that all of these use, and dates as numbers.
"""

from ...hints import install_hint

try:
    import polars  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise ImportError(f"interactions are read by {missing.name}: {install_hint('data')}") from missing

"""Reading: a file of any known format → batches of actions, as ids.

sniffing: what a file is → columns: which of them are meant → values: what they hold, as ids and times → text_rows,
parquet_rows: the rows → actions: all of it together.
"""

try:
    import polars  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise ImportError(f"interactions are read by {missing.name}: pip install 'tableless[data]'") from missing

"""Reading: files of any known format → batches of actions, as ids.

files: one look at the files decides everything that the rest needs to know → text, parquet: one module for each format,
which gives the rows as they stand in the file → values: what stands there, as ids, times and names.
"""

from ...extras import install_hint

try:
    import polars  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise ImportError(f"interactions are read by {missing.name}: {install_hint('data')}") from missing

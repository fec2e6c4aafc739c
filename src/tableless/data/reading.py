"""Reading: a file of any known format → batches of actions, as ids.

file_formats: what a file is → columns: which of them are meant → kinds: what they hold → text_files, parquet_files:
rows → raw_values: their ids and times → actions: all of it together.
"""

from __future__ import annotations

try:
    import polars  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise ImportError(f"interactions are read by {missing.name}: pip install 'tableless[data]'") from missing

"""A few users of some data, for a page to offer as examples."""

from __future__ import annotations

import numpy as np

from ..embedding.ids import to_ids
from .interactions import DataError, Interactions
from .loading import DataConfig, find_data

NUM_EXAMPLES = 3
_LOOKED_AT = 50  # distinct users at the beginning of a file; some may have been left out of the data


def example_users(data: DataConfig, interactions: Interactions) -> list[int | str]:
    """Raw ids of a few users of the interactions; empty if their names are not known.

    Interactions have ids and no strings, so strings are read from the beginning of the file again.
    """
    if interactions.user_kind == "integer":
        return [int(user) for user in interactions.user_ids[:NUM_EXAMPLES]]
    names = _first_names(data)
    if not names:
        return []
    known = np.isin(to_ids(names).numpy(), interactions.user_ids)
    return [*(name for name, is_known in zip(names, known, strict=True) if is_known)][:NUM_EXAMPLES]


def _first_names(data: DataConfig) -> list[int | str]:
    from .reading.files import sniff

    try:
        files = sniff(
            find_data(data.data, data_dir=data.data_dir), user_col=data.user_col, item_col=data.item_col, time_col=""
        )
        names = {"user": files.columns.user, "item": files.columns.item}
        frame, _ = next(iter(files.layouts[0].read(names)))
    except (DataError, StopIteration):  # data that was in memory has no file
        return []
    first = frame["user"].drop_nulls().unique(maintain_order=True).head(_LOOKED_AT)
    return [str(name) for name in first if name != ""]

"""From the name of a run to its directory (`find_run`), and to a model that answers (`tableless.load`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..embedding.scheme import Precision
from ..recommender.run_directory import RunDirectory
from . import hub
from .search import IndexKind
from .settings import AnswerSettings

if TYPE_CHECKING:
    from .model import TrainedModel

PathName = str | os.PathLike[str]


def load(
    run: PathName,
    *,
    precision: Precision = AnswerSettings.precision,
    hot_ids: int = AnswerSettings.hot_ids,
    index: IndexKind = AnswerSettings.index,
    metadata: PathName | None = None,
    interactions: PathName | None = None,
) -> TrainedModel:
    """A trained model that answers, from a run directory or by the id of one on the Hugging Face hub.

    Args:
        run: A run directory, or the id of a model on the hub.
        precision: `"fp32"` (unless given), or `"int8"`: networks in integers, quicker, with small errors.
        hot_ids: For how many users and how many items, those asked for most, vectors are kept, so that they are not
            computed again; 10,000 of each unless given.
        index: `"exact"` (unless given) compares with every item; `"faiss"` looks neighbours and recommendations up.
        metadata: A file with the items' titles.
        interactions: What users have had (a file, a directory, a known dataset): it is not recommended again.

    Returns:
        The model. Its `embed`, `score`, `recommend` and `neighbors` take raw ids, known and new.

    Raises:
        FileNotFoundError: There is no such run, or it has not come to its end.
        ValueError: A file of the run is damaged.

    Example:
        ```python
        import tableless

        model = tableless.load("runs/mine")
        print(model.recommend(42, count=3))
        ```
    """
    from .model import TrainedModel  # it needs `find_run`

    return TrainedModel.from_pretrained(
        run, precision=precision, hot_ids=hot_ids, index=index, metadata=metadata, interactions=interactions
    )


def find_run(run: PathName, *, revision: str | None = None) -> RunDirectory:
    """The run directory of that name. Only a name without one, which may be a model's id, is looked for on the hub."""
    if not Path(run).exists() and hub.is_model_id(run):
        return RunDirectory(hub.fetch(os.fspath(run), revision=revision))
    return RunDirectory(run)

"""tableless: embeddings without embedding tables.

    raw ids → ids → encode → decode → embedding

`to_ids` turns raw ids (strings, bytes, integers) into 64-bit ids. A scheme turns ids into vectors. All schemes of
`SCHEMES` have the same interface; `DeepHashEmbedding` needs no table and no vocabulary. `replace_embeddings` puts
schemes in the place of the tables of a trained model.

    interactions → train → a model that recommends → evaluate, compare, export

`train` makes a recommender with such schemes from a DataFrame or a file. `load` reads one that was saved.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from .embedding import (
    ENCODING_VERSION,
    LSH,
    PAPER_NETWORK,
    SCHEMES,
    DeepHashEmbedding,
    Distillation,
    EmbeddingBag,
    EmbeddingScheme,
    HashFamily,
    JointEmbedding,
    Replacement,
    SideFeatures,
    distil,
    embedding_for,
    replace_embeddings,
    to_ids,
)
from .files.scheme_directory import load_scheme, save_scheme

if TYPE_CHECKING:
    from .api import compare, evaluate, export, train
    from .recommender.models import GMF, MLP
    from .recommender.progress import Progress
    from .recommender.training import TrainConfig
    from .serving.model import TrainedModel

__version__ = "0.2.0"

__all__ = [
    "ENCODING_VERSION",
    "GMF",
    "LSH",
    "MLP",
    "PAPER_NETWORK",
    "SCHEMES",
    "DeepHashEmbedding",
    "Distillation",
    "EmbeddingBag",
    "EmbeddingScheme",
    "HashFamily",
    "JointEmbedding",
    "Progress",
    "Replacement",
    "SideFeatures",
    "TrainConfig",
    "TrainedModel",
    "compare",
    "distil",
    "embedding_for",
    "evaluate",
    "export",
    "load",
    "load_scheme",
    "replace_embeddings",
    "save_scheme",
    "to_ids",
    "train",
]

# These are imported when they are first used: they need polars and pyarrow, and a program that only embeds does not.
_LATER = {
    "GMF": ".recommender.models",
    "MLP": ".recommender.models",
    "Progress": ".recommender.progress",
    "TrainConfig": ".recommender.training",
    "TrainedModel": ".serving.model",
    "compare": ".api",
    "evaluate": ".api",
    "export": ".api",
    "train": ".api",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def load(
    run: str | os.PathLike[str],
    *,
    precision: Literal["fp32", "int8"] = "fp32",
    hot_ids: int = 10_000,
    index: Literal["exact", "faiss"] = "exact",
    metadata: str | os.PathLike[str] | None = None,
    interactions: str | os.PathLike[str] | None = None,
) -> TrainedModel:
    """A trained model that answers, from a run directory or by the id of one on the Hugging Face hub.

    Args:
        run: A run directory, or the id of a model on the hub.
        precision: `"fp32"`, or `"int8"`: networks in integers, quicker, with small errors.
        hot_ids: How many ids to keep the vectors of, for users and for items, so that they are not computed again.
        index: `"exact"` compares with every item; `"faiss"` looks neighbours and recommendations up.
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
    from .serving.model import TrainedModel

    return TrainedModel.from_pretrained(
        run, precision=precision, hot_ids=hot_ids, index=index, metadata=metadata, interactions=interactions
    )

"""tableless: embeddings without embedding tables.

    raw ids → ids → encode → decode → embedding

`to_ids` turns raw ids (strings, bytes, integers) into 64-bit ids. A scheme turns ids into vectors. All schemes of
`SCHEMES` have the same interface; `DeepHashEmbedding` needs no table and no vocabulary. `replace_embeddings` puts
schemes in the place of the tables of a trained model.

    interactions → train → a model that recommends → evaluate, compare, export

`train` makes a recommender with such schemes from a DataFrame or a file. `load` reads one that was saved.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    LeftAlone,
    Replacement,
    Replacements,
    SideFeatures,
    TrainedFromNothing,
    Tuning,
    choose_scheme,
    distil,
    distillation_loss,
    embedding_for,
    replace_embeddings,
    to_ids,
    tune,
)
from .files.compression import CompressedVectors, compress
from .files.replaced_models import load_replaced, save_replaced
from .files.scheme_directory import load_scheme, save_scheme

if TYPE_CHECKING:
    from .api import evaluate, export, train
    from .recommender.comparison import compare
    from .recommender.models import GMF, MLP
    from .recommender.progress import Progress
    from .recommender.training import TrainConfig
    from .serving.click_door import TrainedClickModel, load_clicks, train_clicks
    from .serving.hub import load
    from .serving.model import TrainedModel

__version__ = "0.2.0"

__all__ = [
    "ENCODING_VERSION",
    "GMF",
    "LSH",
    "MLP",
    "PAPER_NETWORK",
    "SCHEMES",
    "CompressedVectors",
    "DeepHashEmbedding",
    "Distillation",
    "EmbeddingBag",
    "EmbeddingScheme",
    "HashFamily",
    "JointEmbedding",
    "LeftAlone",
    "Progress",
    "Replacement",
    "Replacements",
    "SideFeatures",
    "TrainConfig",
    "TrainedClickModel",
    "TrainedFromNothing",
    "TrainedModel",
    "Tuning",
    "choose_scheme",
    "compare",
    "compress",
    "distil",
    "distillation_loss",
    "embedding_for",
    "evaluate",
    "export",
    "load",
    "load_clicks",
    "load_replaced",
    "load_scheme",
    "replace_embeddings",
    "save_replaced",
    "save_scheme",
    "to_ids",
    "train",
    "train_clicks",
    "tune",
]

# These are imported when they are first used: they need polars and pyarrow, and a program that only embeds does not.
_LATER = {
    "GMF": ".recommender.models",
    "MLP": ".recommender.models",
    "Progress": ".recommender.progress",
    "TrainConfig": ".recommender.training",
    "TrainedClickModel": ".serving.click_door",
    "TrainedModel": ".serving.model",
    "compare": ".recommender.comparison",
    "evaluate": ".api",
    "export": ".api",
    "load": ".serving.hub",
    "load_clicks": ".serving.click_door",
    "train": ".api",
    "train_clicks": ".serving.click_door",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})

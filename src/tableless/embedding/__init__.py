"""From raw ids to vectors: raw ids → ids → codes → embeddings.

The names below are public. Those that the package `tableless` does not have are for schemes of your own.
"""

from __future__ import annotations

from .bag import EmbeddingBag
from .budget import fit_to_budget, resolve_budget
from .deep_hash import PAPER_NETWORK, DeepHashEmbedding
from .distillation import Distillation, PoorFitWarning, distil
from .fit_progress import FitProgress
from .hashing import ENCODING_VERSION, HashFamily
from .ids import to_ids
from .joint import JointEmbedding
from .output_losses import distillation_loss
from .replacement import replace_embeddings
from .replacement_report import LeftAlone, Replacement, Replacements
from .scheme import EmbeddingScheme, normal, seeded
from .schemes import SCHEMES, SchemeChoice, choose_scheme, embedding_for
from .side_features import LSH, SideFeatures
from .tuning import Tuning, tune
from .weight_changes import TrainedFromNothing

__all__ = [
    "ENCODING_VERSION",
    "LSH",
    "PAPER_NETWORK",
    "SCHEMES",
    "DeepHashEmbedding",
    "Distillation",
    "EmbeddingBag",
    "EmbeddingScheme",
    "FitProgress",
    "HashFamily",
    "JointEmbedding",
    "LeftAlone",
    "PoorFitWarning",
    "Replacement",
    "Replacements",
    "SchemeChoice",
    "SideFeatures",
    "TrainedFromNothing",
    "Tuning",
    "choose_scheme",
    "distil",
    "distillation_loss",
    "embedding_for",
    "fit_to_budget",
    "normal",
    "replace_embeddings",
    "resolve_budget",
    "seeded",
    "to_ids",
    "tune",
]

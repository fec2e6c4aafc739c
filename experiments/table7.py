"""Table 7 (RQ5): genres in the encoding of DHE, in the recommender, in both, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import Tensor
from typing_extensions import Self

from tableless.embedding.decoders import EmbeddingNetwork
from tableless.embedding.deep_hash import DeepHashEmbedding
from tableless.embedding.scheme import Budget, EmbeddingScheme, fit_to_budget, resolve_budget
from tableless.embedding.side_features import SideFeatures
from tableless.recommender.lines import Line
from tableless.recommender.models import MLP
from tableless.recommender.recipes import train_fast
from tableless.recommender.runs import DataConfig, ModelConfig, build_model, measure
from tableless.recommender.splits import Split
from tableless.recommender.training import TrainConfig, train

from .claims import Claim
from .finished import Finished
from .genres import genres_of
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, SMALL_BATCHES, settings, split_of, trained_teacher
from .writing import table

SEEDS = range(2)
# Half of what early stopping would take: MLP is slow. The tables to learn from are not cut short, GMF needs its epochs.
TRAINING = replace(SMALL_BATCHES, epochs=8)
IDS, GENRES, BOTH = "ids", "genres", "ids and genres"
# Scheme, what its encoding of an item sees, and the paper's AUC without and with genres in the MLP.
ROWS: list[tuple[str, str, float, float]] = [
    ("full", IDS, 97.64, 97.67),
    ("dhe", IDS, 97.67, 97.72),
    ("dhe", GENRES, 79.17, 79.16),
    ("dhe", BOTH, 97.71, 97.73),
    ("hash-embedding", IDS, 97.34, 97.42),
    ("hybrid", IDS, 97.22, 97.31),
]


class GenresAlone(EmbeddingScheme):
    """The network of DHE over side features alone: items with the same genres have the same vector."""

    open_vocabulary = True
    is_computed = True

    def __init__(self, embedding_dim: int, *, width: int, side_features: SideFeatures, seed: int = 0) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.width = width
        self.side_features = side_features
        self.seed = seed
        self.decoder = EmbeddingNetwork(
            side_features.code_dim,
            embedding_dim,
            width=width,
            depth=4,
            normalization="none",
            code_mean_square=float(side_features.rows.square().mean()),
            seed=seed,
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        return self.decoder(self.side_features(ids))

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0, **options: Any) -> Self:
        """The widest network within the budget; `options` are the side features."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        return fit_to_budget(lambda width: cls(embedding_dim, width=width, seed=seed, **options), allowed)


def perform(settings: Settings) -> dict[str, Any]:
    """Build the two sides, train by the fast recipe where the scheme is computed, measure."""
    data, training = DataConfig(**settings["data"]), TrainConfig(**settings["train"])
    split = split_of(data)
    model = _model(ModelConfig(**settings["model"]), split, settings["encoding"], data.data, training.seed)
    if settings["genres_in_mlp"]:
        genres = genres_of(data.data, split.train)
        model = MLP(users=model.users, items=model.items, item_features=genres, seed=training.seed)
    if model.items.is_computed:
        teacher, _ = trained_teacher(model, data, split, replace(training, epochs=SMALL_BATCHES.epochs))
        train_fast(model, split, training, teacher=teacher)
    else:
        train(model, split, training)
    return measure(model, split)


def _model(config: ModelConfig, split: Split, encoding: str, data: str, seed: int) -> MLP:
    plain = build_model(config, split, seed=seed)
    assert isinstance(plain, MLP)
    if encoding == IDS:
        return plain
    sizes: dict[str, Any] = {"embedding_dim": config.embedding_dim, "vocab_size": split.num_known_items}
    sizes |= {"seed": 2 * seed + 1, "side_features": genres_of(data, split.train)}
    kind = GenresAlone if encoding == GENRES else DeepHashEmbedding
    return MLP(users=plain.users, items=kind.from_budget(config.budget, **sizes), seed=seed)


def _runs(scheme: str, encoding: str, *, genres_in_mlp: bool) -> list[Settings]:
    budget = "1/1" if scheme == "full" else "1/4"
    where = {"encoding": encoding, "genres_in_mlp": genres_in_mlp}
    return [settings(MOVIELENS, scheme, budget, seed, backbone="mlp", training=TRAINING) | where for seed in SEEDS]


EXPERIMENT = Experiment(
    "table7",
    list(
        chain.from_iterable(
            _runs(scheme, encoding, genres_in_mlp=also) for also in (False, True) for scheme, encoding, _, _ in ROWS
        )
    ),
    perform,
)

_PLAIN, _ENHANCED = (_runs("dhe", encoding, genres_in_mlp=False) for encoding in (IDS, BOTH))
CLAIMS = [
    Claim("genres in the encoding help DHE", _ENHANCED, _PLAIN, paper=97.71 - 97.67),
    Claim("genres in the MLP help DHE", _runs("dhe", IDS, genres_in_mlp=True), _PLAIN, paper=97.72 - 97.67),
    Claim(
        "genres in the encoding do as well as in the MLP",
        _ENHANCED,
        _runs("dhe", IDS, genres_in_mlp=True),
        paper=97.71 - 97.72,
        similar=True,
    ),
    Claim(
        "genres in the MLP help the full table",
        _runs("full", IDS, genres_in_mlp=True),
        _runs("full", IDS, genres_in_mlp=False),
        paper=97.67 - 97.64,
    ),
]


def section(lines: Sequence[Line]) -> str:
    """The table, beside the paper's."""
    finished = Finished(lines)
    rows = [
        [
            scheme,
            encoding,
            finished.cell(_runs(scheme, encoding, genres_in_mlp=False)),
            finished.cell(_runs(scheme, encoding, genres_in_mlp=True)),
            f"{without:.2f} / {with_genres:.2f}",
        ]
        for scheme, encoding, without, with_genres in ROWS
    ]
    headings = ["item embedding", "made from", "ours: MLP", "ours: MLP with genres", "paper: without / with genres"]
    return "\n\n".join(
        [
            "Ours: ML-1M, 1/4, eight epochs at most (the tables that DHE learns from have as many as everywhere); the "
            "paper's: ML-20M.",
            table(headings, rows),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)

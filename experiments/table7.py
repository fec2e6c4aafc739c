"""Table 7 (RQ5): genres in the encoding of DHE, in the recommender, in both, or nowhere. The paper's is of MLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

from torch import Tensor
from typing_extensions import Self

from tableless import SCHEMES
from tableless.data.config import DataConfig
from tableless.data.splits import Split
from tableless.embedding.budget import Budget, fit_to_budget, resolve_budget
from tableless.embedding.decoders import EmbeddingNetwork
from tableless.embedding.deep_hash import DeepHashEmbedding
from tableless.embedding.scheme import EmbeddingScheme
from tableless.embedding.side_features import SideFeatures
from tableless.files.whole import Line
from tableless.recommender.models import MLP
from tableless.recommender.runs import ModelConfig, build_model

from .claims import Claim
from .finished import SHOWN, Finished
from .genres import genres_of
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, RECIPES, Recipe, perform_on, settings, split_of
from .writing import paragraphs, table

SEEDS = range(2)
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
# By our recipe: the table, and DHE that knows the id.
ROWS_OF: dict[Recipe, list[tuple[str, str]]] = {
    "paper": [(scheme, encoding) for scheme, encoding, _, _ in ROWS],
    "fast": [("full", IDS), ("dhe", IDS), ("dhe", BOTH)],
}


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
            depth=5,
            normalization="batch",
            code_mean_square=float(side_features.rows.square().mean()),
            seed=seed,
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        return self.decoder(self.side_features(ids))

    @property
    def config(self) -> dict[str, Any]:
        """Plain values: of the side features, their kind."""
        return {**super().config, "side_features": self.side_features.config}

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0, **options: Any) -> Self:
        """The widest network within the budget; of the `options` only the side features matter."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        side = options["side_features"]
        return fit_to_budget(lambda width: cls(embedding_dim, width=width, side_features=side, seed=seed), allowed)


def perform(settings: Settings) -> dict[str, Any]:
    """Build the two sides, train by the recipe, measure."""
    data = DataConfig(**settings["data"])
    split = split_of(data)
    seed = settings["train"]["seed"]
    model = _model(ModelConfig(**settings["model"]), split, settings["encoding"], data.data, seed)
    if settings["genres_in_mlp"]:
        genres = genres_of(data.data, split.train)
        model = MLP(users=model.users, items=model.items, item_features=genres, seed=seed)
    with mock.patch.dict(SCHEMES, {"genres-alone": GenresAlone}):  # a run is described by the names of its schemes
        return perform_on(split, settings, model)


def _model(config: ModelConfig, split: Split, encoding: str, data: str, seed: int) -> MLP:
    plain = build_model(config, split, seed=seed)
    assert isinstance(plain, MLP)
    if encoding == IDS:
        return plain
    sizes: dict[str, Any] = {"embedding_dim": config.embedding_dim, "vocab_size": split.num_known_items}
    sizes |= {"seed": 2 * seed + 1, "side_features": genres_of(data, split.train), **config.options}
    kind = GenresAlone if encoding == GENRES else DeepHashEmbedding
    return MLP(users=plain.users, items=kind.from_budget(config.budget, **sizes), seed=seed)


def _runs(scheme: str, encoding: str, recipe: Recipe, *, genres_in_mlp: bool) -> list[Settings]:
    budget = "1/1" if scheme == "full" else "1/4"
    where = {"encoding": encoding, "genres_in_mlp": genres_in_mlp}
    return [settings(MOVIELENS, scheme, budget, seed, recipe=recipe, backbone="mlp") | where for seed in SEEDS]


EXPERIMENT = Experiment(
    "table7",
    [
        run
        for recipe in RECIPES
        for also in (False, True)
        for scheme, encoding in ROWS_OF[recipe]
        for run in _runs(scheme, encoding, recipe, genres_in_mlp=also)
    ],
    perform,
)


def _claims(recipe: Recipe) -> list[Claim]:
    plain, enhanced = (_runs("dhe", encoding, recipe, genres_in_mlp=False) for encoding in (IDS, BOTH))
    in_mlp = _runs("dhe", IDS, recipe, genres_in_mlp=True)
    table_in_mlp, table_alone = (_runs("full", IDS, recipe, genres_in_mlp=also) for also in (True, False))
    of_mlp: dict[str, Any] = {"paper_backbone": "mlp"}
    return [
        Claim("genres in the encoding help DHE", enhanced, plain, paper=97.71 - 97.67, **of_mlp),
        Claim("genres in the MLP help DHE", in_mlp, plain, paper=97.72 - 97.67, **of_mlp),
        Claim(
            "genres in the encoding do as well as in the MLP",
            enhanced,
            in_mlp,
            paper=97.71 - 97.72,
            similar=True,
            **of_mlp,
        ),
        Claim("genres in the MLP help the full table", table_in_mlp, table_alone, paper=97.67 - 97.64, **of_mlp),
    ]


CLAIMS = [claim for recipe in RECIPES for claim in _claims(recipe)]


def section(lines: Sequence[Line]) -> str:
    """A table for each recipe, beside the paper's."""
    finished = Finished(lines)
    parts = ["Ours: ML-1M, MLP, 1/4; the paper's: ML-20M, MLP, 1/4."]
    for recipe, name in RECIPES.items():
        rows = [
            [
                scheme,
                encoding,
                *finished.cells(_runs(scheme, encoding, recipe, genres_in_mlp=False)),
                *finished.cells(_runs(scheme, encoding, recipe, genres_in_mlp=True)),
                f"{without:.2f} / {with_genres:.2f}",
            ]
            for scheme, encoding, without, with_genres in ROWS
            if (scheme, encoding) in ROWS_OF[recipe]
        ]
        ours = [f"{where}: {label}" for where in ("MLP", "MLP with genres") for label in SHOWN.values()]
        headings = [f"{name}: item embedding", "made from", *ours, "paper's AUC: without / with genres"]
        parts.append(table(headings, rows, num_texts=2))
    return paragraphs([*parts, finished.measured_on(EXPERIMENT.runs)])


if __name__ == "__main__":
    main(EXPERIMENT)

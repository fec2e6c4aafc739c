import csv
from dataclasses import replace

import pytest

from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_world

WORLD = "world:users=200,items=120,actions=6000,clusters=4"


@pytest.fixture(scope="session")
def ratings(tmp_path_factory):
    """The small world as a file, with strings for ids: user-3, item-7."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    interactions = small_world().interactions()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user_id", "item_id"])
        for user, row in zip(interactions.user_rows(), interactions.items, strict=True):
            writer.writerow([f"user-{interactions.user_ids[user]}", f"item-{interactions.item_ids[row]}"])
    return path


@pytest.fixture(scope="session")
def runs(ratings, tmp_path_factory):
    """Directories of trained runs: `open` and `mlp` compute embeddings of strings, `closed` has tables for integers."""
    folder = tmp_path_factory.mktemp("runs")
    network = ModelConfig(scheme="dhe", budget="20000", embedding_dim=16, options={"depth": 1})
    kinds = {
        "open": (str(ratings), network),
        "mlp": (str(ratings), replace(network, backbone="mlp")),
        "closed": (WORLD, ModelConfig(scheme="full", embedding_dim=16)),
    }
    # So little training that vectors still differ: it is not about what was learned.
    training = TrainConfig(epochs=1, batch_size=256, learning_rate=1e-4, recipe="paper")
    for name, (data, model) in kinds.items():
        config = DataConfig(data=data)
        train_and_measure(config, model, training, load_split(config), out=folder / name)
    return folder

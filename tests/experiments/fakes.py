"""What the tests of experiments share: a small world, settings, finished lines."""

from experiments import (
    training_runs,
)

from tableless.data.config import DataConfig

WORLD = "world:users=100,items=60,actions=2000,clusters=4"


def in_the_world(settings, **data):
    """The same run on small data, for an epoch."""
    return settings | {
        "data": DataConfig(WORLD, **data).settings(),
        "train": settings["train"] | {"epochs": 1, "batch_size": 256},
    }


def runs_of_a_model(count, scheme="dhe", *, recipe="paper", backbone="gmf"):
    """Settings as an experiment has them, one for each seed."""
    return [
        training_runs.settings(training_runs.MOVIELENS, scheme, "1/4", seed, recipe=recipe, backbone=backbone)
        for seed in range(count)
    ]


def lines_with(runs, aucs, **results):
    """A finished line for each run."""
    return [
        run | {"results": {"auc": auc, "ndcg@10": auc / 10, **results}} for run, auc in zip(runs, aucs, strict=True)
    ]


def seed_of(run):
    return run["train"]["seed"] if "train" in run else run["seed"]


def double(settings):
    if settings["number"] > 2:
        raise ValueError("too large")
    return {"auc": 2.0 * settings["number"]}

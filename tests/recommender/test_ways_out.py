"""A budget that is too small ends in a message that says what to write instead, and that is true."""

import re

import pytest

from tableless.data.splits import split_leave_one_out
from tableless.recommender.recipes import train_by_recipe
from tableless.recommender.runs import ModelConfig, build_model
from tableless.recommender.training import TrainConfig
from tests.data.tiny import interactions_of, small_split

ITEMS = 40
FEW_ITEMS = split_leave_one_out(
    interactions_of(*([(user + step) % ITEMS for step in range(5)] for user in range(200)), num_items=ITEMS)
)
WAY_OUT = re.compile(r"Give budget=(?:'(\d+)B'|(\d+)) or more")


def refusal(config: ModelConfig) -> str:
    with pytest.raises(ValueError, match="is too small; the smallest possible here is") as refused:
        build_model(config, FEW_ITEMS, seed=0)
    return str(refused.value)


@pytest.mark.parametrize("scheme", ["dhe", "head-and-tail", "coded"])
def test_the_budget_that_is_named_is_enough_and_a_little_less_is_not(scheme):
    enough = int(WAY_OUT.search(refusal(ModelConfig(scheme=scheme)))[1])
    build_model(ModelConfig(scheme=scheme, budget=f"{enough}B"), FEW_ITEMS, seed=0)
    # A share is rounded down, so a few bytes less may still come to the same.
    assert WAY_OUT.search(refusal(ModelConfig(scheme=scheme, budget=f"{enough - 10}B")))[1] == str(enough)


def test_a_number_of_parameters_is_answered_by_one():
    enough = WAY_OUT.search(refusal(ModelConfig(budget="100")))[2]
    build_model(ModelConfig(budget=enough), FEW_ITEMS, seed=0)


@pytest.mark.parametrize("budget", ["1/16", "1900B", "100 parameters"])
def test_the_schemes_that_are_named_fit(budget):
    named = re.findall(r"scheme='([\w-]+)'", refusal(ModelConfig(budget=budget)))
    assert "full" in named
    assert ("low-rank" in named) == (budget != "100 parameters")
    for scheme in named:
        build_model(ModelConfig(scheme=scheme, budget=budget), FEW_ITEMS, seed=0)


@pytest.mark.parametrize("scheme", ["dhe", "coded", "auto"])
def test_a_few_hundred_ids_are_trained_with_the_default_budget(scheme, short_fits):
    split = small_split()
    model = build_model(ModelConfig(scheme=scheme), split, seed=0)
    table = 4 * ModelConfig.embedding_dim * (split.num_known_users + split.num_known_items)
    training = train_by_recipe(model, split, TrainConfig(epochs=1, batch_size=256))
    assert training.reports
    assert model.users.num_bytes + model.items.num_bytes <= table / 16

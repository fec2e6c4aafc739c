import pytest

from tableless.recommender.evaluation import popularity_warning
from tableless.recommender.recipes import kept_in_words
from tableless.recommender.training import EpochReport

FAST = {"batch_size": 2048, "epochs": 300, "recipe": "fast"}


def warning(auc, *, scheme="dhe", num_actions=10_000, training=FAST, **results):
    results |= {"auc": auc, "auc_se": 0.004, "popularity_auc": 0.8}
    return popularity_warning(results, training=training, scheme=scheme, num_actions=num_actions)


def test_a_model_that_is_clearly_above_popularity_is_not_warned_about():
    assert warning(0.81) is None
    assert warning(float("nan")) is None


@pytest.mark.parametrize(("auc", "words"), [(0.803, "not clearly above"), (0.79, "is below")])
def test_a_model_at_or_below_popularity_is_told_what_to_try(auc, words):
    text = warning(auc)
    assert words in text
    assert "batch_size=128 (with 2048 an epoch of this data has few steps: 5)" in text
    assert "recipe='paper'" in text
    assert "a larger budget" in text


def test_only_what_can_help_is_tried():
    assert "batch_size" not in warning(0.7, num_actions=1_000_000)
    assert "budget" not in warning(0.7, scheme="full")
    assert "ended at its limit" in warning(0.7, capped=True)
    assert "recipe='fast'" in warning(0.7, training={**FAST, "recipe": "paper"})


def epoch(number, auc, *, is_best):
    return EpochReport(number, loss=1.0, validation_auc=auc, seconds=1.0, examples_per_second=1.0, is_best=is_best)


def test_it_is_said_which_weights_were_kept():
    assert "the fitted model itself was best" in kept_in_words([epoch(0, 0.7, is_best=False)])
    kept = kept_in_words([epoch(0, 0.7, is_best=True), epoch(1, 0.8, is_best=True), epoch(2, 0.75, is_best=False)])
    assert "epoch 2" in kept
    assert "0.8000" in kept

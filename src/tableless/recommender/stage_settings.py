"""How each stage of the fast recipe is trained, given how the user wants training to be."""

from __future__ import annotations

from dataclasses import replace

from ..data.splits import Split
from .models import Recommender
from .spectrum import beyond_chance
from .training import TrainConfig

FINE_TUNING_EPOCHS = 10
# A table by softmax over shared negatives (docs/tried.md).
_TABLE_EPOCHS, _STEPS_PER_EPOCH, _LARGER_STEPS = 10, 500, 10
_SMALLEST_BATCH, _LARGEST_BATCH = 256, 4096
# The same where users have this many actions or more: a batch has all actions of a hundredth of them.
_MANY_ACTIONS, _EPOCHS_OF_USERS, _STEPS_OF_USERS, _DECAY_OF_USERS = 50, 20, 100, 0.4
_RATE_OF_LISTS = 2  # times that of pairs


def with_loss(config: TrainConfig, model: Recommender) -> TrainConfig:
    """The config with a loss that suits the model and the recipe instead of `auto`.

    A table by softmax has a far better top of the ranking than one by `bce`, and nearly its AUC; and it is trained in
    less time. The paper's recipe keeps the paper's loss. Networks over pairs (MLP) were not measured with another one.
    """
    if config.loss != "auto":
        return config
    is_softmax = config.recipe == "fast" and model.scores_are_products
    return replace(config, loss="softmax" if is_softmax else "bce")


def with_selection(config: TrainConfig, model: Recommender) -> TrainConfig:
    """The config with the measure that suits what is learned from a table, instead of `auto`.

    Lists are learned for their first places. The AUC hardly moves there, and chance decides which way; so it often
    kept the fit, though the lists were better by a tenth (docs/tried.md).
    """
    if config.select != "auto":
        return config
    return replace(config, select="ndcg@10" if model.scores_are_products else "auc")


def with_temperature(config: TrainConfig, model: Recommender, split: Split) -> TrainConfig:
    """The config with a temperature that suits the data, where negatives are shared and the user sets none."""
    if config.temperature is not None or not shares_negatives(config, model):
        return config
    clearness = beyond_chance(split, model.users.embedding_dim, seed=model.seed)
    return replace(config, temperature=config.temperature_for(split.actions_per_id, clearness))


def teacher_training(config: TrainConfig, teacher: Recommender, split: Split) -> TrainConfig:
    """How a table to learn from is trained: with weight decay, of which the user may set how much.

    By a softmax over shared negatives, it has a start that is better than noise (`prepared` in teachers.py). So
    some 5,000 large steps are enough. With fewer than ten actions for each id it needs more decay. Where users have
    many actions, 2,000 steps of whole users are enough, and take a fifth of the time. On sparse data these are worse
    (docs/tried.md).
    """
    if not shares_negatives(config, teacher):
        return replace(config, weight_decay=config.weight_decay or teacher.table_decay)
    actions = split.train.num_actions
    whole_users = actions >= _MANY_ACTIONS * split.num_known_users
    if whole_users:
        decay, epochs, batch_size = _DECAY_OF_USERS, _EPOCHS_OF_USERS, -(-actions // _STEPS_OF_USERS)
    else:
        decay, epochs = 0.18 * max(1.0, 10 / max(split.actions_per_id, 1.0)) ** 0.75, _TABLE_EPOCHS
        batch_size = max(_SMALLEST_BATCH, min(actions // _STEPS_PER_EPOCH, _LARGEST_BATCH))
    epochs = min(config.epochs, epochs)
    return replace(
        config,
        weight_decay=config.weight_decay or decay,
        epochs=epochs,
        patience=epochs,
        batch_size=batch_size,
        whole_users=whole_users,
        learning_rate=_LARGER_STEPS * config.learning_rate,
        schedule="one-cycle",
    )


def fine_tuning(config: TrainConfig, split: Split, model: Recommender) -> TrainConfig:
    """How the fitted model is trained by what its table expects, at the rate that suits its schemes.

    Most is gained at the end, where the rate comes down, so training is not stopped before. A model that learns lists
    (losses.py) has batches of its own. For others the time of a step depends on how many distinct ids its batch has. So
    an epoch is quickest with batches that have nearly all ids, but it needs at least ten steps. Larger batches allow a
    larger rate.
    """
    config = with_selection(config, model)
    epochs = min(config.epochs, FINE_TUNING_EPOCHS)
    rate = min(model.users.tuning_rate, model.items.tuning_rate)
    own = replace(config, epochs=epochs, patience=epochs, schedule="one-cycle")
    if model.scores_are_products:
        return replace(own, learning_rate=_RATE_OF_LISTS * rate)
    batch_size = min(split.num_known_users + split.num_known_items, 32_768)
    batch_size = max(1, min(max(batch_size, 16_384), split.train.num_actions // 10))
    return replace(own, batch_size=batch_size, learning_rate=rate * (batch_size / 16_384) ** 0.5)


def shares_negatives(config: TrainConfig, model: Recommender) -> bool:
    """Do all actions of a batch have the same negatives?"""
    return config.shares_negatives(scores_are_products=model.scores_are_products)

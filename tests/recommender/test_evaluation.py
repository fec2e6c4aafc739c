import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tableless.recommender import evaluation
from tableless.recommender.evaluation import evaluate, given_negatives, popularity_scores
from tableless.recommender.splits import split_global_time, split_leave_one_out
from tests.recommender.tiny import interactions_of, small_split, small_world


def slow_auc(scores, split, users, items):
    """The definition, in ten lines: per user, untouched items below the held-out one, a tie counting half."""
    values = []
    for user, held_out in zip(users, items, strict=True):
        touched = set(split.train.items[split.train.starts[user] : split.train.starts[user + 1]].tolist())
        touched |= {int(i) for u, i in zip(split.validation_users, split.validation_items, strict=True) if u == user}
        touched |= {int(i) for u, i in zip(split.test_users, split.test_items, strict=True) if u == user}
        others = [item for item in range(split.train.num_items) if item not in touched]
        wins = sum(scores[user, held_out] > scores[user, item] for item in others)
        ties = sum(scores[user, held_out] == scores[user, item] for item in others)
        values.append((wins + ties / 2) / len(others))
    return float(np.mean(values))


def by_table(scores):
    table = torch.tensor(scores, dtype=torch.float32)
    return lambda users: table[torch.from_numpy(users).long()]


def test_a_case_worked_by_hand():
    # User 0 trained on 0, validates on 1, tests on 2; items 3, 4, 5 are untouched.
    split = split_leave_one_out(interactions_of([0, 1, 2], num_items=6))
    result = evaluate(by_table([[9.0, 9.0, 0.5, 0.1, 0.5, 0.9]]), split)
    assert result.auc == (1 + 0.5) / 3  # one below, one tie, one above
    assert result.hit_rate == 1.0
    assert result.ndcg == pytest.approx(1 / np.log2(1.5 + 2))  # one above and half a tie: position 1.5
    assert evaluate(by_table([[9.0, 9.0, 0.5, 0.1, 0.5, 0.9]]), split, on="validation").auc == 1.0


def test_equal_scores_everywhere_give_one_half():
    assert evaluate(lambda users: torch.zeros(len(users), 120), small_split()).auc == 0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(["validation", "test"]))
def test_it_agrees_with_the_slow_definition_ties_included(seed, levels, on):
    rng = np.random.default_rng(seed)
    picks = [rng.integers(0, 12, rng.integers(1, 8)).tolist() for _ in range(5)]
    split = split_leave_one_out(interactions_of([0, 1, 2, 3], *picks, num_items=12))
    scores = rng.integers(0, levels, (6, 12)).astype(float)
    users = getattr(split, f"{on}_users")
    items = getattr(split, f"{on}_items")
    expected = slow_auc(scores, split, users, items)
    assert evaluate(by_table(scores), split, on=on).auc == pytest.approx(expected)


def test_blocks_do_not_change_the_result(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(200, 120))
    whole = evaluate(by_table(scores), small_split())
    monkeypatch.setattr(evaluation, "_BLOCK_PAIRS", 500)
    assert evaluate(by_table(scores), small_split()) == whole


def test_the_world_s_own_probabilities_beat_popularity():
    split, world = small_split(), small_world()
    best = evaluate(lambda users: torch.from_numpy(world.scores(users).astype(np.float32)), split)
    assert best.auc > evaluate(popularity_scores(split.train), split).auc + 0.05


def test_a_sample_is_taken_where_everything_would_take_too_long_and_says_so():
    split = small_split()
    scores = by_table(np.random.default_rng(0).normal(size=(200, 120)))
    sampled = evaluate(scores, split, max_pairs=50 * 120)
    assert sampled.sampled
    assert sampled.num_evaluated == 50
    assert sampled == evaluate(scores, split, max_pairs=50 * 120)
    assert sampled != evaluate(scores, split, max_pairs=50 * 120, seed=1)
    assert not evaluate(scores, split).sampled


def test_groups_are_thirds_of_the_training_actions():
    # Item 0 has 6 of 12 training actions (head), item 1 has 3, and the others share 3.
    picks = [[0, 1, 8, 9], [0, 1, 8, 9], [0, 1, 8, 9], [0, 2, 8, 9], [0, 3, 8, 9], [0, 4, 9, 8]]
    split = split_leave_one_out(interactions_of(*picks, num_items=12))
    thirds = evaluation._groups(split, np.zeros(5, np.int32), np.array([0, 1, 2, 3, 8], np.int32))
    assert thirds["head"].tolist() == [True, False, False, False, False]
    assert thirds["middle"].tolist() == [False, True, False, False, False]
    assert thirds["tail"].tolist() == [False, False, True, True, True]


def test_new_ids_are_reported_apart_and_left_out_where_nobody_can_answer():
    picks = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    data = interactions_of(*picks, [3, 0], num_items=5)
    times = np.array([0, 1, 8, 0, 1, 9, 0, 2, 7, 9, 9])
    split = split_global_time(data.__class__(**{**data.__dict__, "times": times}), validation_share=0.2, test_share=0.3)
    assert (split.num_known_users, split.num_known_items) == (3, 3)
    scores = by_table(np.random.default_rng(0).normal(size=(4, 5)))
    assert "new users" in evaluate(scores, split).groups
    closed = evaluate(scores, split, answers_new_ids=False)
    assert "new users" not in closed.groups
    assert closed.num_evaluated < closed.num_held_out


def test_given_negatives_rank_the_held_out_item_among_them():
    scores = by_table([[0.1, 0.9, 0.5, 0.5, 0.2]])
    outcome = given_negatives(scores, np.array([0], np.int32), np.array([2], np.int32), [np.array([0, 1, 3, 4])])
    assert (outcome.below, outcome.equal, outcome.above) == (2, 1, 1)
    assert outcome.auc == (2 + 0.5) / 4


def test_nothing_to_evaluate_on_is_said():
    split = split_leave_one_out(interactions_of([0, 1], num_items=3))
    with pytest.raises(ValueError, match="no held-out action"):
        evaluate(by_table([[0.0, 0.0, 0.0]]), split)


def test_pairs_without_limit_are_all_pairs():
    split = small_split()
    scores = popularity_scores(split.train)
    assert evaluate(scores, split, max_pairs=float("inf")) == evaluate(scores, split, max_pairs=1e15)

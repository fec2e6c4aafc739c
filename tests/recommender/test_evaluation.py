import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tableless.data.splits import split_global_time, split_leave_one_out
from tableless.recommender import evaluation, ranking
from tableless.recommender.evaluation import METRICS, measure_scorer
from tableless.recommender.measurement import given_negatives
from tableless.recommender.models import BACKBONES
from tableless.recommender.ranking import draw_sample
from tableless.recommender.runs import ModelConfig, build_model
from tableless.recommender.scoring import by_rows, model_scores, popularity_scores
from tests.data.tiny import interactions_of, small_split, small_world


def slow_results(scores, split, on):
    """The definitions, one user at a time. Only untouched items are compared with; a tie is a half."""
    all_users, all_items = getattr(split, f"{on}_users"), getattr(split, f"{on}_items")
    rows = []
    for user in np.unique(all_users):
        own = all_items[all_users == user].tolist()
        touched = set(split.train.items[split.train.starts[user] : split.train.starts[user + 1]].tolist())
        touched |= set(split.validation_items[split.validation_users == user].tolist())
        touched |= set(split.test_items[split.test_users == user].tolist())
        others = [item for item in range(split.train.num_items) if item not in touched]

        def lost(item, rivals, user=user):
            return sum(
                (scores[user, r] > scores[user, item]) + (scores[user, r] == scores[user, item]) / 2 for r in rivals
            )

        places = [lost(item, others + [other for other in own if other != item]) for item in own]
        row = {"auc": np.mean([1 - lost(item, others) / len(others) for item in own]), "hr@10": min(places) < 10}
        row["recall@20"] = np.mean([place < 20 for place in places])
        for cutoff in (10, 20):
            best = sum(1 / math.log2(place + 2) for place in range(min(cutoff, len(own))))
            row[f"ndcg@{cutoff}"] = sum(1 / math.log2(place + 2) for place in places if place < cutoff) / best
        rows.append(row)
    return {name: float(np.mean([row[name] for row in rows])) for name in METRICS}


def by_table(scores):
    table = torch.tensor(scores, dtype=torch.float32)
    return by_rows(lambda users: table[torch.from_numpy(users).long()])


def with_several_held_out(split, rng, most=4):
    """The same with up to `most` test items for each user, none of which they trained on."""
    users, items = [], []
    for user in range(split.train.num_users):
        touched = set(split.train.items[split.train.starts[user] : split.train.starts[user + 1]].tolist())
        touched |= set(split.validation_items[split.validation_users == user].tolist())
        free = [item for item in range(split.train.num_items) if item not in touched]
        chosen = rng.permutation(free)[: min(rng.integers(0, most + 1), len(free) - 1)]
        users += [user] * len(chosen)
        items += chosen.tolist()
    return replace(split, test_users=np.array(users, np.int32), test_items=np.array(items, np.int32))


def test_a_case_worked_by_hand():
    # User 0 trained on 0, validates on 1, tests on 2; items 3, 4, 5 are untouched.
    split = split_leave_one_out(interactions_of([0, 1, 2], num_items=6))
    result = measure_scorer(by_table([[9.0, 9.0, 0.5, 0.1, 0.5, 0.9]]), split)
    assert result.auc == (1 + 0.5) / 3  # one below, one tie, one above
    assert result["hr@10"] == 1.0
    assert result["ndcg@10"] == pytest.approx(1 / np.log2(1.5 + 2))  # one above and half a tie: position 1.5
    assert measure_scorer(by_table([[9.0, 9.0, 0.5, 0.1, 0.5, 0.9]]), split, on="validation").auc == 1.0


def test_several_held_out_items_worked_by_hand():
    # User 0 trained on 0 and tests on 1, 2 and 3; 4 to 29 are untouched, 25 of them below all.
    split = split_leave_one_out(interactions_of([0, 1, 2], num_items=30))
    split = replace(
        split,
        validation_users=np.empty(0, np.int32),
        validation_items=np.empty(0, np.int32),
        test_users=np.zeros(3, np.int32),
        test_items=np.array([1, 2, 3], np.int32),
    )
    scores = np.zeros((1, 30))
    scores[0, :5] = [99, 9, 8, -1, 8.5]  # the order is 0 (trained on), 1, 4, 2, then 25 at 0, and 3 as the last
    result = measure_scorer(by_table(scores), split)
    assert result["auc"] == pytest.approx((1 + 25 / 26 + 0) / 3)
    assert result["hr@10"] == 1.0
    assert result["recall@20"] == pytest.approx(2 / 3)
    gain = 1 / math.log2(2) + 1 / math.log2(4)
    assert result["ndcg@10"] == pytest.approx(gain / sum(1 / math.log2(place + 2) for place in range(3)))


def test_equal_scores_everywhere_give_one_half():
    assert measure_scorer(by_rows(lambda users: torch.zeros(len(users), 120)), small_split()).auc == 0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(["validation", "test"]), st.booleans())
def test_it_agrees_with_the_slow_definitions_ties_and_several_items_included(seed, levels, on, several):
    rng = np.random.default_rng(seed)
    picks = [rng.integers(0, 40, rng.integers(3, 18)).tolist() for _ in range(5)]
    split = split_leave_one_out(interactions_of([0, 1, 2, 3], *picks, num_items=40))
    split = with_several_held_out(split, rng) if several else split
    split = (
        split
        if len(split.test_users)
        else replace(split, test_users=np.zeros(1, np.int32), test_items=np.ones(1, np.int32))
    )
    scores = rng.integers(0, levels, (6, 40)).astype(float)
    result = measure_scorer(by_table(scores), split, on=on)
    assert result.means == pytest.approx(slow_results(scores, split, on))


@pytest.mark.parametrize("levels", [3, 10**6])
def test_the_top_is_exact_where_the_auc_is_taken_against_drawn_items(monkeypatch, levels):
    rng = np.random.default_rng(levels)
    split = with_several_held_out(small_split(), rng)
    scores = rng.integers(0, levels, (200, 120)).astype(float)
    exact = measure_scorer(by_table(scores), split)
    monkeypatch.setattr(ranking, "DRAWN_ITEMS", 30)
    monkeypatch.setattr(ranking, "_FIRST_ITEMS", 7)  # many blocks of items, after each of which users drop out
    monkeypatch.setattr(ranking, "_BLOCK_PAIRS", 640)
    drawn = measure_scorer(by_table(scores), split, max_pairs=1)
    assert (drawn.auc_items, drawn.num_evaluated, exact.auc_items) == (30, exact.num_evaluated, None)
    for name in METRICS:
        assert (drawn[name] == pytest.approx(exact[name])) == (name != "auc"), name
    assert abs(drawn.auc - exact.auc) < 3 * drawn.errors["auc"]


def test_users_who_can_not_reach_the_top_any_more_are_not_scored_further():
    split, asked = small_split(), []
    table = torch.from_numpy(np.random.default_rng(0).normal(size=(200, 120))).float()

    def score(users, items=None):
        asked.append((len(users), 120 if items is None else items.shape[-1]))
        rows = table[torch.from_numpy(users).long()]
        return (
            rows[:, torch.from_numpy(items).long()]
            if items.ndim == 1
            else rows.gather(1, torch.from_numpy(items).long())
        )

    sample = draw_sample(split, on="test", max_pairs=1)
    ranking.count_top(score, sample, order=np.arange(120, dtype=np.int32), cutoff=1)
    exhaustive = len(sample.users) * 120
    assert sum(users * items for users, items in asked) <= exhaustive + len(sample.users)
    first = ranking._FIRST_ITEMS
    try:
        ranking._FIRST_ITEMS = 10
        asked.clear()
        ranking.count_top(score, sample, order=np.arange(120, dtype=np.int32), cutoff=1)
    finally:
        ranking._FIRST_ITEMS = first
    assert sum(users * items for users, items in asked) < exhaustive / 3


def test_an_auc_against_drawn_items_is_unbiased(monkeypatch):
    split = small_split()
    scores = by_table(np.random.default_rng(0).normal(size=(200, 120)))
    exact = measure_scorer(scores, split, metrics=["auc"]).auc
    monkeypatch.setattr(ranking, "DRAWN_ITEMS", 5)
    draws = [measure_scorer(scores, split, max_pairs=1, metrics=["auc"], seed=seed).auc for seed in range(200)]
    assert np.std(draws) > 0.002
    assert np.mean(draws) == pytest.approx(exact, abs=4 * np.std(draws) / math.sqrt(200))


@pytest.mark.parametrize("on", ["validation", "test"])
def test_thousands_of_users_are_measured_however_slow_the_model_is(monkeypatch, on):
    """With two million pairs a second, 38,000 items used to leave some fifty users to choose a model by."""
    monkeypatch.setattr(ranking, "DRAWN_ITEMS", 20)
    monkeypatch.setattr(ranking, "FEWEST_USERS", {"validation": 100, "test": 150})
    split = small_split()
    sample = draw_sample(split, on=on, max_pairs=120)  # enough for a single user with all items
    assert len(sample.users) == ranking.FEWEST_USERS[on]
    assert sample.others.shape == (len(sample.users), 20)
    for row, user in enumerate(sample.users):
        touched = set(split.train.items[split.train.starts[user] : split.train.starts[user + 1]].tolist())
        touched |= set(split.validation_items[split.validation_users == user].tolist())
        touched |= set(split.test_items[split.test_users == user].tolist())
        assert not touched & set(sample.others[row].tolist())
    assert (ranking._sizes(10**6, 40_000, 2e6, 5_000)) == (5_000, 20)
    assert (ranking._sizes(10**6, 40_000, 4e9, 5_000)) == (100_000, None)


def test_the_floors_are_those_that_are_promised():
    assert ranking.FEWEST_USERS == {"validation": 5_000, "test": 10_000}


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_a_model_scores_lists_blocks_and_everything_alike(backbone):
    split = small_split()
    model = build_model(ModelConfig(scheme="dhe", budget="1/1 parameters", backbone=backbone), split, seed=0)
    score = model_scores(model, split)
    users = np.array([5, 0, 5, 199], np.int32)
    whole = score(users)
    items = np.array([7, 7, 119, 0, 3], np.int32)
    torch.testing.assert_close(score(users, items), whole[:, [7, 7, 119, 0, 3]])
    lists = np.array([[1, 2], [3, 3], [0, 119], [50, 51]], np.int32)
    torch.testing.assert_close(score(users, lists), whole.gather(1, torch.from_numpy(lists).long()))


def test_the_standard_error_is_that_of_a_mean_over_users():
    scores = np.random.default_rng(0).normal(size=(200, 120))
    result = measure_scorer(by_table(scores), small_split())
    sample = draw_sample(small_split(), on="test", max_pairs=1e9)
    aucs = METRICS["auc"].by_user(ranking.count_all(by_table(scores), sample))
    assert result.errors["auc"] == pytest.approx(np.std(aucs, ddof=1) / math.sqrt(len(aucs)))
    assert set(result.as_dict()) == {
        *METRICS,
        *(f"{name}_se" for name in METRICS),
        "evaluated",
        "held_out",
        "auc_items",
    }


def test_a_new_metric_is_one_entry(monkeypatch):
    metric = evaluation.Metric("MRR", lambda outcome: outcome.sum_by_user(1 / (outcome.position + 1)))
    monkeypatch.setattr(evaluation, "METRICS", {**METRICS, "mrr": metric})
    scores = by_table([[9.0, 9.0, 0.5, 0.1, 0.4, 0.9]])
    split = split_leave_one_out(interactions_of([0, 1, 2], num_items=6))
    assert measure_scorer(scores, split, metrics=["mrr"])["mrr"] == 0.5


def test_blocks_do_not_change_the_result(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(200, 120))
    whole = measure_scorer(by_table(scores), small_split())
    monkeypatch.setattr(ranking, "_BLOCK_PAIRS", 500)
    assert measure_scorer(by_table(scores), small_split()) == whole


def test_the_world_s_own_probabilities_beat_popularity():
    split, world = small_split(), small_world()
    best = measure_scorer(by_rows(lambda users: torch.from_numpy(world.scores(users).astype(np.float32))), split)
    assert best.auc > measure_scorer(popularity_scores(split.train), split).auc + 0.05


def test_a_sample_of_users_is_taken_where_everything_would_take_too_long_and_says_so(monkeypatch):
    monkeypatch.setattr(ranking, "FEWEST_USERS", {"validation": 20, "test": 40})
    split = small_split()
    scores = by_table(np.random.default_rng(0).normal(size=(200, 120)))
    sampled = measure_scorer(scores, split, max_pairs=50 * 120)
    assert (sampled.num_evaluated, sampled.num_held_out, sampled.auc_items) == (50, 200, None)
    assert sampled == measure_scorer(scores, split, max_pairs=50 * 120)
    assert sampled != measure_scorer(scores, split, max_pairs=50 * 120, seed=1)
    assert measure_scorer(scores, split).num_evaluated == 200


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
    assert "new users" in measure_scorer(scores, split).groups
    closed = measure_scorer(scores, split, known_only=True)
    assert "new users" not in closed.groups
    assert closed.num_evaluated < closed.num_held_out


def test_given_negatives_rank_the_held_out_item_among_them():
    scores = by_table([[0.1, 0.9, 0.5, 0.5, 0.2]])
    negatives = [np.array([0, 1, 3, 4], np.int32)]
    outcome = given_negatives(scores, np.array([0], np.int32), np.array([2], np.int32), negatives)
    assert outcome.auc == (2 + 0.5) / 4
    assert outcome.position == 1.5


def test_nothing_to_evaluate_on_is_said():
    split = split_leave_one_out(interactions_of([0, 1], num_items=3))
    with pytest.raises(ValueError, match="no held-out action"):
        measure_scorer(by_table([[0.0, 0.0, 0.0]]), split)


def test_pairs_without_limit_are_all_pairs():
    split = small_split()
    scores = popularity_scores(split.train)
    assert measure_scorer(scores, split, max_pairs=float("inf")) == measure_scorer(scores, split, max_pairs=1e15)

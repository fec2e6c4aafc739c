import pytest
from experiments import losses

from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.scoring import by_rows, popularity_scores
from tests.data.tiny import small_split


def test_every_way_has_the_same_seeds_and_data_and_a_line_of_its_own():
    keys = [str(run) for run in losses.EXPERIMENT.runs]
    assert len(set(keys)) == len(keys) == len(losses.WAYS) * len(losses.DATA) * len(losses.SEEDS)
    assert {run["train"]["loss"] for run in losses.runs_of(losses.DATA[0], "softmax")} == {"softmax"}
    assert "loss" not in losses.runs_of(losses.DATA[0], "bce")[0]["train"], "lines of earlier versions are found"


@pytest.mark.parametrize("method", sorted(losses.RIVALS))
def test_tables_of_implicit_rank_better_than_popularity(method):
    pytest.importorskip("implicit", reason="pip install 'tableless[rivals]'")
    split = small_split()
    options = losses.RIVALS[method][0] | ({"iterations": 300} if method == "bpr" else {})
    users, items = losses.implicit_table(split, method, 8, 0, options)
    assert len(users) == split.num_known_users
    assert len(items) == split.num_known_items
    found = measure_scorer(by_rows(lambda rows: users[rows] @ items.T), split, on="validation")
    assert found["ndcg@10"] > measure_scorer(popularity_scores(split.train), split, on="validation")["ndcg@10"]

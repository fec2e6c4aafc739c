"""Accuracy floors on real data: a change that loses accuracy must not pass unseen."""

import pytest

from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tests.data.real_data import REAL_DATA, needs_real_data

# A faster schedule than the default, which a few thousandths better a table does not repay in a test.
QUICK = TrainConfig(epochs=12, batch_size=4096, learning_rate=5e-3)


@needs_real_data
@pytest.mark.parametrize(("scheme", "floor"), [("full", 0.895), ("dhe", 0.880)])
def test_movielens_1m_is_ranked_as_well_as_it_was(scheme, floor):
    data = DataConfig(data="movielens-1m", data_dir=str(REAL_DATA))
    _, results = train_and_measure(data, ModelConfig(scheme=scheme, budget="1/4 parameters"), QUICK, load_split(data))
    assert results["auc"] > floor
    assert results["popularity_auc"] == pytest.approx(0.813, abs=0.001)

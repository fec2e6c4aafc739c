import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tableless import cli
from tableless.embedding.deep_hash import DeepHashEmbedding
from tableless.embedding.tables import FullEmbedding
from tableless.recommender.models import GMF
from tableless.recommender.stream_samples import Reservoir
from tableless.recommender.streaming import train_on_stream
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_world


def model():
    def scheme(seed):
        return DeepHashEmbedding(16, width=32, depth=2, num_hashes=64, seed=seed)

    return GMF(users=scheme(0), items=scheme(1))


def batches(size=256, passes=1):
    data = small_world().interactions()
    users, items = data.user_ids[data.user_rows()], data.item_ids[data.items]
    order = np.random.default_rng(0).permutation(len(users))
    for _ in range(passes):
        for start in range(0, len(order), size):
            yield users[order[start : start + size]], items[order[start : start + size]]


def test_the_reservoir_is_a_uniform_sample_of_distinct_values():
    counts = np.zeros(1000)
    for seed in range(200):
        reservoir = Reservoir(100, seed)
        for start in range(0, 1000, 50):
            popular = np.zeros(500, np.int64)  # value 0, over and over
            reservoir.offer(np.concatenate([np.arange(start, start + 50), popular]))
        assert len(np.unique(reservoir.values)) == 100
        counts[reservoir.values] += 1
    assert abs(counts.mean() - 20) < 1e-9
    assert counts[0] < 45, "a value that came ten thousand times is no likelier than another"
    assert counts.std() < 6


def test_a_small_reservoir_holds_everything_once():
    reservoir = Reservoir(100, 0)
    reservoir.offer(np.array([5, 5, -7, 5]))
    reservoir.offer(np.array([-7, 9]))
    assert sorted(reservoir.values.tolist()) == [-7, 5, 9]
    assert set(reservoir.draw(50).tolist()) == {-7, 5, 9}


def test_it_gets_better_at_predicting_what_comes_next():
    reports = []
    final = train_on_stream(model(), batches(passes=6), TrainConfig(learning_rate=5e-3), on_batch=reports.append)
    assert final.num_actions == 6 * 6000
    assert reports[0].auc == pytest.approx(0.5, abs=0.1)
    assert final.recent_auc > 0.6


def test_a_closed_scheme_is_refused():
    closed = GMF(users=FullEmbedding(4, vocab_size=9), items=FullEmbedding(4, vocab_size=9))
    with pytest.raises(ValueError, match="open to new ids"):
        train_on_stream(closed, batches(), TrainConfig())


@pytest.mark.parametrize("num_processes", [1, 2])
def test_the_command_streams_a_directory_of_parquet_files(num_processes, tmp_path):
    data = small_world().interactions()
    frame = pl.DataFrame({"user_id": data.user_ids[data.user_rows()], "item_id": data.item_ids[data.items]})
    (tmp_path / "data").mkdir()
    for part in range(3):
        frame[part::3].write_parquet(tmp_path / "data" / f"{part}.parquet")
    arguments = [
        "train", str(tmp_path / "data"), "--stream", "--budget", "60000", "--batch-size", "200",
        "--out", str(tmp_path / "run"), "--json",
    ]  # fmt: skip
    if num_processes == 1:
        done = CliRunner().invoke(cli.app, arguments)
        assert done.exit_code == 0, done.output
    else:
        torchrun = ["torch.distributed.run", "--nproc-per-node", str(num_processes), "--master-port", "29673", "-m"]
        done = subprocess.run(
            [sys.executable, "-m", *torchrun, "tableless", *arguments],
            capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["actions"] * num_processes == pytest.approx(6000, abs=2)
    assert result["embedding_parameters"] <= 60_000
    assert (tmp_path / "run" / "items.parquet").exists()

import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import tableless
from tableless import cli, to_ids
from tableless.data.config import DataConfig
from tableless.embedding.deep_hash import DeepHashEmbedding
from tableless.embedding.tables import FullEmbedding
from tableless.recommender.models import GMF
from tableless.recommender.runs import ModelConfig
from tableless.recommender.stream_options import StreamOptions
from tableless.recommender.stream_runs import run_stream
from tableless.recommender.stream_samples import Reservoir
from tableless.recommender.streaming import train_on_stream
from tableless.recommender.training import TrainConfig
from tableless.serving.export.exporting import export_run
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


def stream_of_strings(directory, count=8_000):
    random = np.random.default_rng(0)
    user = random.integers(0, 80, count)
    item = 2 * random.integers(0, 15, count) + user % 2
    frame = pl.DataFrame({"user": [f"u-{n * 31}" for n in user], "item": [f"i-{n * 17}" for n in item]})
    directory.mkdir()
    frame.write_parquet(directory / "part.parquet")
    return [f"u-{n * 31}" for n in range(80)], [f"i-{n * 17}" for n in range(30)]


def test_a_stream_of_dhe_leaves_a_model_that_knows_tastes_and_popularity(tmp_path):
    users, items = stream_of_strings(tmp_path / "data")
    arguments = ["train", str(tmp_path / "data"), "--stream", "--budget", "120KB", "--batch-size", "100"]
    arguments += ["--half-life", "500", "--embedding-dim", "16", "--out", str(tmp_path / "run"), "--json"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["actions"] == 8_000
    assert result["bytes"] <= 120_000
    assert result["recent_auc"] > 0.65, "at most 0.75: half of all items are of the same taste"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"]["popularity"]["half_life"] == 500
    model = tableless.load(tmp_path / "run")
    ids = dict(zip(to_ids(items).tolist(), items, strict=True))
    best = [ids[found.item] for found in model.recommend(users[3], count=10)]
    assert sum(items.index(name) % 2 for name in best) >= 8, "the items of the user's own taste"
    scores = model.score(users[3], [found.item for found in model.recommend(users[3], count=3)])
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_a_stream_s_model_is_exported_with_its_popularity(tmp_path):
    stream_of_strings(tmp_path / "data", count=1_500)
    config = DataConfig(data=str(tmp_path / "data"))
    run_stream(config, ModelConfig(budget="120KB", embedding_dim=16), TrainConfig(), out=tmp_path / "run")
    report = export_run(tmp_path / "run", tmp_path / "exported")
    assert report


def test_what_a_stream_of_dhe_has_no_use_for_is_refused(tmp_path):
    stream_of_strings(tmp_path / "data", count=100)
    data = DataConfig(data=str(tmp_path / "data"))
    with pytest.raises(
        ValueError, match=r"learning_rate is 0\.1, but a stream with the scheme dhe has rates of its own"
    ):
        run_stream(data, ModelConfig(budget="120KB"), TrainConfig(learning_rate=0.1))
    with pytest.raises(ValueError, match="half_life 50 is that of popularity, which only a GMF of the scheme dhe has"):
        run_stream(
            data, ModelConfig(scheme="bloom", budget="120KB"), TrainConfig(), options=StreamOptions(half_life=50)
        )
    done = CliRunner().invoke(cli.app, ["train", str(tmp_path / "data"), "--half-life", "50"])
    assert "give --stream as well" in str(done.exception)

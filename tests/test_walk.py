"""How many files an id passes, from a CSV to a split, in a training step, when a run is loaded, and over HTTP.

A reader who follows one id opens these files. The limits keep that walk short.
"""

import random
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from fastapi.testclient import TestClient

import tableless
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.recommender.batches import Batch, Batches
from tableless.recommender.runs import ModelConfig, build_model, train_and_measure
from tableless.recommender.scoring import ModelInputs
from tableless.recommender.training import TrainConfig
from tableless.serving.http.app import build_app
from tableless.serving.settings import ServerSettings

ROOT = f"{Path(tableless.__file__).parent}/"
ITEM = "film-39"


@contextmanager
def files_where(is_on_the_way):
    """The files in which a function is called, or returns, with something that is on the way. The first comes first."""
    files = {}

    def look(frame, event, argument):
        path, code = frame.f_code.co_filename, frame.f_code
        if event not in ("call", "return") or not path.startswith(ROOT) or code.co_name == "<module>":
            return
        file = path[len(ROOT) :]
        values = [argument] if event == "return" else list(frame.f_locals.values())
        if file not in files and any(is_on_the_way(value) for value in values):
            files[file] = len(files)

    threading.setprofile(look)  # for threads that begin from here on
    sys.setprofile(look)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def holds(name, depth=2):
    """Does a value hold the id: as text, as bytes, as its 64 bits, alone or in something?"""
    number = int(tableless.to_ids(name))

    def check(value, left=depth):
        if isinstance(value, str):
            return value == name
        if isinstance(value, (bytes, bytearray)):
            return name.encode() in value
        if isinstance(value, int):
            return value == number
        if isinstance(value, torch.Tensor):
            return value.dtype == torch.int64 and not value.is_meta and bool((value == number).any())
        if isinstance(value, np.ndarray):
            return value.dtype == np.int64 and bool((value == number).any())
        if isinstance(value, pl.Series):
            return value.dtype in (pl.String, pl.Int64) and check(value.to_list(), left)
        if isinstance(value, pl.DataFrame):
            return any(check(column, left) for column in value.get_columns())
        if isinstance(value, dict):
            value = list(value.values())
        return left > 0 and isinstance(value, (list, tuple)) and any(check(one, left - 1) for one in value[:2000])

    return check


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    """Ids that are strings, far apart, and each of them several times."""
    draw = random.Random(0)
    rows = [f"person-{user * 7},film-{draw.randrange(40) * 13},{time}" for user in range(60) for time in range(12)]
    path = tmp_path_factory.mktemp("walk") / "ratings.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def run(ratings):
    data, out = DataConfig(str(ratings)), ratings.parent / "run"
    training = TrainConfig(epochs=1, recipe="paper")
    train_and_measure(data, ModelConfig(budget="9000"), training, load_split(data), out=out)
    return out


def test_from_a_csv_to_a_split_an_id_passes_nine_files(ratings):
    with files_where(holds(ITEM)) as files:
        split = load_split(DataConfig(str(ratings)))
    assert int(tableless.to_ids(ITEM)) in split.train.item_ids
    assert 3 <= len(files) <= 9, " ".join(sorted(files))


def test_in_a_training_step_an_id_its_code_its_vector_and_its_score_pass_twelve_files(ratings):
    """The loop that asks for the step is one of them, and so are the compiled loops of kernels/ together."""
    split = load_split(DataConfig(str(ratings)))
    model = build_model(ModelConfig(budget="1/1 parameters"), split, seed=0).train()
    batches = Batches(split.train, batch_size=64, num_negatives=2, num_items=split.num_known_items, seed=0)
    batch = next(iter(batches.epoch(0)))
    sizes = {len(batch.users), len(batch.items), len(batch.user)}

    def is_of_the_batch(value):  # ids, codes, vectors or scores of the batch, or the batch itself
        is_array = isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim > 0 and len(value) in sizes
        return is_array or isinstance(value, Batch)

    with files_where(is_of_the_batch) as files:
        batch = next(iter(batches.epoch(0)))
        inputs = ModelInputs.of(model, split.train)
        model.score_distinct(*inputs.of_batch(batch)).sum().backward()
    assert next(model.items.parameters()).grad is not None
    ours = {file for file in files if not file.startswith("kernels/")}
    assert 3 <= len(ours) <= 11, " ".join(sorted(ours))


def test_a_listed_id_passes_eight_files_to_a_loaded_model(run):
    with files_where(holds(ITEM)) as files:
        model = tableless.load(run)
    assert any(found.item == ITEM for found in model.items_matching(ITEM))
    assert 3 <= len(files) <= 8, " ".join(sorted(files))


@pytest.mark.parametrize(
    ("ask", "most", "afterwards"),
    [
        # Later the model looks up whether the id is known.
        (lambda client: client.post("/embed", json={"ids": [ITEM]}), 8, {"serving/model.py", "serving/search.py"}),
        # The answer repeats the user.
        (lambda client: client.get("/recommend", params={"user": ITEM, "count": 2}), 8, {"serving/http/messages.py"}),
    ],
    ids=["embed", "recommend"],
)
def test_over_http_an_id_passes_few_files_to_its_vector(run, ask, most, afterwards):
    with files_where(holds(ITEM)) as files:
        # The server's threads begin here, so that they are seen. The profiler makes everything slow: the limit is high.
        application = build_app(run, tableless.load, ServerSettings(time_limit=300.0))
        files.clear()
        with TestClient(application) as client:
            answer = ask(client)
    assert answer.status_code == 200
    assert min(files[file] for file in afterwards) > files["embedding/inference/network.py"]  # which gives the vector
    # The body is read inside the route: it has no argument with the id.
    files = {*files, "serving/http/routes.py"} - afterwards
    assert 3 <= len(files) <= most, " ".join(sorted(files))

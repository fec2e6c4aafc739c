"""A trained run of coded rows is asked in every way that there is, and answers as the modules do in Python."""

import json
import shutil
import subprocess

import numpy as np
import polars as pl
import pytest
import torch
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import tableless
from tableless import cli, to_ids
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.recommender.run_directory import RunDirectory
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tableless.serving.export.formats import write_file
from tableless.serving.export.graphs import exportables
from tests.serving.conftest import WORLD
from tests.serving.http.tiny_run import app_for
from tests.serving.test_export import NODE, assert_close, install_for_node, open_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*of the table's variance is unexplained")

OPTIONS = {"strings": {}, "integers": {"check_bits": 6}}
ASKED = {
    "strings": ["item-3", "item-77", "nobody", "東京", ""],
    "integers": [3, 77, -5, 2**63 - 1, 10**12],
}
kinds = pytest.mark.parametrize("kind", OPTIONS)


@pytest.fixture(scope="module")
def trained(ratings, tmp_path_factory):
    """A run for strings, and one for integers with check bits; each is trained once."""
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("coded") / kind
            data = DataConfig(data=str(ratings) if kind == "strings" else WORLD)
            model = ModelConfig(scheme="coded", budget="16B/id", embedding_dim=8, options=OPTIONS[kind])
            train_and_measure(data, model, TrainConfig(epochs=2, batch_size=512), load_split(data), out=made[kind])
        return made[kind]

    return get


@torch.no_grad()
def expected(run, raw, side="items"):
    scheme = getattr(RunDirectory(run).read().model, side)
    assert type(scheme).__name__ == "CodedEmbedding"
    return scheme(to_ids(raw)).numpy()


@kinds
def test_over_http_raw_ids_get_the_vectors_of_the_model_and_users_their_items(kind, trained):
    run = trained(kind)
    user = "user-7" if kind == "strings" else 7
    with TestClient(app_for(run)) as client:
        for side in ("items", "users"):
            answer = client.post("/embed", json={"ids": ASKED[kind], "side": side[:-1]})
            np.testing.assert_allclose(answer.json()["vectors"], expected(run, ASKED[kind], side), atol=1e-6)
        answer = client.get("/recommend", params={"user": str(user), "count": 5}).json()
    best = tableless.load(run).recommend(user, count=5)
    assert [own["item"] for own in answer["items"]] == [own.item for own in best]
    items = [own.item for own in best]
    model = RunDirectory(run).read().model
    with torch.no_grad():
        scores = model(to_ids([user]), to_ids(items).unsqueeze(0))
    np.testing.assert_allclose([own["score"] for own in answer["items"]], scores.view(-1), rtol=1e-4, atol=1e-6)


@kinds
def test_in_bulk_every_id_of_a_file_gets_its_vector(kind, trained, tmp_path):
    raw = [ASKED[kind][place % 5] for place in range(777)]
    pl.DataFrame({"id": raw}).write_parquet(tmp_path / "ids.parquet")
    done = CliRunner().invoke(
        cli.app,
        ["embed", str(trained(kind)), "--ids", str(tmp_path / "ids.parquet"), "--out", str(tmp_path / "out.parquet")],
    )
    assert done.exit_code == 0, done.output
    frame = pl.read_parquet(tmp_path / "out.parquet")
    assert frame["id"].to_list() == raw
    np.testing.assert_allclose(frame["vector"].to_numpy(), expected(trained(kind), raw), atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_exported_it_answers_in_python_and_in_node(trained, tmp_path):
    run = trained("integers")
    exported = tmp_path / "item_embedding.onnx"
    part = exportables(RunDirectory(run).read_model()[0])[1]  # each part takes long, and both sides are alike
    write_file(part.module, exported, "onnx", inputs=tuple(part.inputs), output=part.output)
    random = torch.Generator().manual_seed(3)
    ids = torch.cat([to_ids(ASKED["integers"]), torch.randint(-(2**63), 2**63 - 1, (300,), generator=random)])
    ids = torch.cat([ids, to_ids(ASKED["strings"]), torch.arange(120)])
    wanted = torch.from_numpy(expected(run, ids))
    assert_close(open_onnx(exported)(ids), wanted)
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is not installed")
    install_for_node()
    ids.numpy().tofile(tmp_path / "ids")
    job = {"model": str(exported), "inputs": {"ids": str(tmp_path / "ids")}}
    job["output"] = str(tmp_path / "vectors")
    done = subprocess.run(["node", "run_onnx.mjs", json.dumps([job])], cwd=NODE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_close(torch.from_numpy(np.fromfile(tmp_path / "vectors", np.float32)).view_as(wanted), wanted)

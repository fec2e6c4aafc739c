"""A served click model: named columns in, chances out; and what is refused, without repeating it."""

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import tableless
from tableless.cli import app
from tableless.serving.http.click_app import build_click_app
from tableless.serving.settings import ServerSettings
from tests.data.clicks.tiny_clicks import COLUMNS, tiny_clicks

ASKED = {
    "user": [-11, None],
    "item": ["item 3", "secret"],
    "device": ["tv", None],
    "tags": [["t1", "t2"], None],
    "price": [2, None],
}


@pytest.fixture(scope="module")
def model():
    config = tableless.TrainConfig(epochs=1, batch_size=256)
    return tableless.train_clicks(
        tiny_clicks(400), columns=COLUMNS, label="clicked", scheme="full", embedding_dim=4, config=config
    )


@pytest.fixture
def client(model):
    with TestClient(build_click_app(model, ServerSettings(max_ids=3, max_body_bytes=4000))) as client:
        yield client


def test_scores_are_those_of_the_model(client, model):
    answer = client.post("/score", json={"columns": ASKED}).json()
    assert answer["scores"] == pytest.approx(model.score(ASKED).tolist())
    assert answer["probabilities"] == pytest.approx(model.probabilities(ASKED).tolist())
    assert client.post("/score", json={"columns": {name: [] for name in ASKED}}).json()["scores"] == []


@pytest.mark.parametrize(
    ("changed", "status", "sentence"),
    [
        ({"user": ["secret", 1]}, 422, "Row 1 of the column 'user' needs integers of 64 bits, or null."),
        ({"user": [2**63, 1]}, 422, "Row 1 of the column 'user' needs integers of 64 bits, or null."),
        ({"user": [True, 1]}, 422, "Row 1 of the column 'user' needs integers of 64 bits, or null."),
        ({"item": ["x", 7]}, 422, "Row 2 of the column 'item' needs strings, or null."),
        ({"item": ["x", "secret" * 200]}, 422, "Row 2 of the column 'item' needs strings, or null."),
        ({"tags": [["x"], [7]]}, 422, "Row 2 of the column 'tags': its lists need strings."),
        ({"tags": ["secret", []]}, 422, "Row 1 of the column 'tags' needs lists of at most 64 strings, or null."),
        ({"tags": [["x"] * 65, []]}, 422, "Row 1 of the column 'tags' needs lists of at most 64 strings, or null."),
        ({"price": ["secret", 1]}, 422, "Row 1 of the column 'price' needs numbers, or null."),
        ({"price": [1]}, 422, "The columns have different lengths; each needs a value for every row."),
        ({"secret": [1, 2]}, 422, "There is a column that the model does not have; it has user, item, device, tags, "),
        ({"user": [1] * 4}, 413, "A request may have 3 rows."),
        ({"item": ["x" * 5000, None]}, 413, "A body may have 4,000 bytes at most"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(client, changed, status, sentence):
    answer = client.post("/score", json={"columns": {**ASKED, **changed}})
    assert (answer.status_code, answer.json()["detail"][: len(sentence)]) == (status, sentence)
    assert "secret" not in answer.text


def test_a_column_may_not_be_left_out(client):
    answer = client.post("/score", json={"columns": {"user": [1]}})
    assert answer.json()["detail"].startswith("The column 'item' is missing; give null")
    for body in ({}, {"columns": []}, {"columns": {}, "secret": 1}, {"columns": {"user": 5}}):
        answer = client.post("/score", json=body)
        assert answer.status_code == 422
        assert "secret" not in answer.text
    assert client.post("/score", content=b"{").status_code == 422


def test_the_server_tells_what_it_serves(client):
    facts = client.get("/facts").json()
    assert facts["columns"][3] == "tags (string, lists by '|')"
    assert facts["results"]["auc"] > 0
    assert client.get("/healthz").json()["kind"] == "clicks"
    assert "POST /score" in client.get("/docs").text
    assert client.get("/").status_code == 200
    client.post("/score", json={"columns": ASKED})
    assert 'route="/score"' in client.get("/metrics").text
    assert "/score" in client.get("/openapi.json").json()["paths"]


def test_a_token_is_asked_for(model):
    with TestClient(build_click_app(model, ServerSettings(token="word"))) as client:
        assert client.post("/score", json={"columns": ASKED}).status_code == 401
        assert client.get("/healthz").status_code == 200
        shown = {"Authorization": "Bearer word"}
        assert client.post("/score", json={"columns": ASKED}, headers=shown).status_code == 200


def test_numbers_that_are_no_numbers_are_refused(client):
    body = '{"columns": {"user": [1], "item": ["x"], "device": [null], "tags": [[]], "price": [NaN]}}'
    answer = client.post("/score", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


def test_the_command_serves_a_click_model(model, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("tableless.serving.http.app.serve", lambda app, **settings: served.append(app))
    model.save(tmp_path / "run")
    assert CliRunner().invoke(app, ["serve", str(tmp_path / "run")]).exit_code == 0
    with TestClient(served[0], base_url="http://127.0.0.1") as client:
        assert len(client.post("/score", json={"columns": ASKED}).json()["scores"]) == 2
    refused = CliRunner().invoke(app, ["serve", str(tmp_path / "run"), "--items", "films.csv"])
    assert "a click model has no use for --items; leave it out" in str(refused.exception)

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from tableless import to_ids
from tableless.serving.http.app import build_app
from tableless.serving.model import TrainedModel
from tableless.serving.settings import ServerSettings

from .tiny_run import DIM, app_for, load, write_run

BINARY = "application/octet-stream"
IDS = [0, 7, -1, 2**63 - 1, -(2**63), 7, 123_456_789_012]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def client(run):
    """One for all tests here: they ask, and change nothing."""
    with TestClient(app_for(run)) as client:
        yield client


def expected(run, ids, side="item"):
    return load(run).embed(torch.tensor(ids), side=side).numpy()


@pytest.mark.parametrize("side", ["item", "user"])
def test_json_gives_the_vectors_of_the_model_over_the_whole_range_of_int64(client, run, side):
    answer = client.post("/embed", json={"ids": IDS, "side": side})
    assert answer.status_code == 200
    assert answer.json()["dim"] == DIM
    np.testing.assert_allclose(answer.json()["vectors"], expected(run, IDS, side), atol=1e-6)


@pytest.mark.parametrize("side", ["item", "user"])
def test_bytes_give_the_same_vectors_as_bytes(client, run, side):
    headers = {"Content-Type": BINARY, "Accept": BINARY}
    body = np.array(IDS, "<i8").tobytes()
    answer = client.post(f"/embed?side={side}", content=body, headers=headers)
    assert (answer.headers["x-rows"], answer.headers["x-dim"]) == (str(len(IDS)), str(DIM))
    vectors = np.frombuffer(answer.content, "<f4").reshape(len(IDS), DIM)
    np.testing.assert_allclose(vectors, expected(run, IDS, side), atol=1e-6)


def test_strings_are_hashed_as_everywhere_else(tmp_path):
    run = write_run(tmp_path / "run", kind="string")
    names = ["item 3", "never seen", "日本", ""]
    with TestClient(app_for(run)) as client:
        answer = client.post("/embed", json={"ids": names})
    np.testing.assert_allclose(answer.json()["vectors"], load(run).embed(to_ids(names)), atol=1e-6)


def test_no_ids_give_no_vectors(client):
    assert client.post("/embed", json={"ids": []}).json() == {"vectors": [], "dim": DIM, "known": []}


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (f"[1, {2**63}]", "number 2"),
        (f"[{-(2**63) - 1}]", "2^63"),
        ("[" + "9" * 5000 + "]", ""),
        ("[1.0]", "fraction"),
        ("[NaN]", "fraction"),
        ("[true]", "true or false"),
        ("[null]", "null"),
        ("[[1]]", "a list"),
        ('[{"a": 1}]', "an object"),
        ('[1, "1"]', "both"),
        (f'["{"x" * 513}"]', "513"),
        ("7", "a list of ids is needed"),
        ("[1", "JSON"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_id_is_refused_with_a_sentence(client, ids, says):
    answer = client.post("/embed", content=f'{{"ids": {ids}}}', headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert says in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 200


def test_errors_repeat_nothing_of_what_was_sent(client):
    secret = "s3cret-value"
    for body in ({"ids": [secret, 1]}, {"ids": [1], secret: 1}, {"ids": {secret: 1}}, {"ids": [1], "side": secret}):
        answer = client.post("/embed", json=body)
        assert answer.status_code == 422
        assert secret not in answer.text
    for address in (f"/neighbors?id=1&side={secret}", f"/recommend?user={secret}", f"/{secret}", f"/page/{secret}"):
        answer = client.get(address)
        assert answer.status_code in (404, 422)
        assert secret not in answer.text


def test_half_a_surrogate_pair_is_refused(client):
    headers = {"Content-Type": "application/json"}
    assert client.post("/embed", content=b'{"ids": ["\\ud800"]}', headers=headers).status_code == 422
    assert client.post("/recommend", content=b'{"user": "\\ud800"}', headers=headers).status_code == 422


def test_a_string_is_no_id_where_the_data_has_integers(client):
    answer = client.post("/embed", json={"ids": ["7"]})
    assert answer.status_code == 404
    assert "integers" in answer.json()["detail"]


def test_bytes_that_are_no_whole_ids_are_refused(client):
    answer = client.post("/embed", content=b"1234567", headers={"Content-Type": BINARY})
    assert answer.status_code == 422
    assert "7 bytes" in answer.json()["detail"]
    assert client.post("/embed?side=both", content=b"", headers={"Content-Type": BINARY}).status_code == 422
    assert client.post("/embed", content=b"<x/>", headers={"Content-Type": "text/xml"}).status_code == 415


def test_a_table_answers_for_its_own_ids_and_names_the_place_of_others(tmp_path):
    run = write_run(tmp_path / "run", scheme="full")
    with TestClient(app_for(run)) as client:
        assert client.post("/embed", json={"ids": [0, 11]}).status_code == 200
        answer = client.post("/embed", json={"ids": [0, 12]})
    assert answer.status_code == 404
    assert "item number 2" in answer.json()["detail"]


def test_broken_weights_give_an_error_and_never_nan(tmp_path):
    class Broken(TrainedModel):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            vectors = self.vectors["item"]
            self.vectors["item"] = lambda ids: vectors(ids) * float("nan")

    write_run(tmp_path / "run")
    with TestClient(build_app(tmp_path / "run", Broken.from_pretrained, ServerSettings())) as client:
        answer = client.post("/embed", json={"ids": [1]})
    assert answer.status_code == 500
    assert "not a number" in answer.json()["detail"]

"""`POST /items` and `POST /users`: checked, limited, kept before the answer, and there again after a restart."""

import json
import shutil

import pytest
from fastapi.testclient import TestClient

import tableless
from tableless import TrainConfig
from tests.conftest import few_visits
from tests.films import GENRES, world

from .tiny_run import app_for, write_run


@pytest.fixture(scope="module", params=[True, False], ids=["strings", "integers"])
def trained(request, tmp_path_factory):
    films, out = world(strings=request.param), tmp_path_factory.mktemp("runs") / "films"
    with few_visits():
        tableless.train(
            films.actions,
            scheme="full",
            embedding_dim=8,
            item_features=films.films,
            user_features=films.people,
            config=TrainConfig(epochs=6, batch_size=512),
            out=out,
        )
    return out, films, "tt-new" if request.param else 7_000_000_000_000_000_001


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "runs" / "films")
    return tmp_path / "runs" / "films"


@pytest.fixture
def client(run):
    with TestClient(app_for(run)) as client:
        yield client


def near(client, films, film):
    answer = client.get("/neighbors", params={"id": film, "count": 8}).json()
    assert answer["known"] is True
    return [films.genre_of.get(each["id"]) for each in answer["neighbors"]]


def test_a_new_film_is_there_at_once_and_after_a_restart_without_an_ordinary_end(trained, run):
    _, films, film = trained
    client = TestClient(app_for(run))  # not left: the server is as good as killed
    answer = client.post("/items", json={"id": film, "title": "Brand new", "genres": GENRES[2], "year": 1999})
    assert answer.status_code == 200
    assert answer.json() == {"added": [film], "num_items": len(films.genre_of) + 1}
    assert near(client, films, film).count(2) >= 6
    with TestClient(app_for(run)) as again:
        assert near(again, films, film).count(2) >= 6
        found = again.get("/items", params={"query": "brand"}).json()["items"]
        assert [(each["item"], each["title"]) for each in found] == [(film, "Brand new")]
        person = next(person for person, taste in films.taste_of.items() if taste == 2)
        best = again.get("/recommend", params={"user": person, "count": 100, "exclude_seen": False}).json()["items"]
        assert film in [each["item"] for each in best]


def test_people_who_are_nothing_but_features_get_films_of_their_taste(trained, client):
    _, films, _ = trained
    people = [{"id": 10**12 + taste, "taste": f"likes {taste}"} for taste in range(4)]
    assert client.post("/users", json=people).json()["added"] == [row["id"] for row in people]
    for taste, person in enumerate(people):
        best = client.get("/recommend", params={"user": person["id"], "count": 8}).json()
        assert best["known"] is True
        assert [films.genre_of[each["item"]] for each in best["items"]].count(taste) >= 6


def test_a_reload_keeps_what_was_added(trained, client):
    _, films, film = trained
    client.post("/items", json={"id": film, "genres": GENRES[0]})
    assert client.post("/reload", json={}).status_code == 200
    assert near(client, films, film).count(0) >= 6


@pytest.mark.parametrize("make", [lambda id: {"id": id}, lambda id: [{"id": id}]])
def test_one_that_was_in_training_is_refused_and_nothing_is_kept(trained, run, client, make):
    answer = client.post("/items", json=make(trained[1].actions["item_id"][0]))
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("Item number 1 of those given is known from training")
    assert not (run / "added_items.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"secret": 1}, "There is a field that is no feature of this run; its features are genres, year."),
        ({"year": "s3cret"}, "Year: it must be a number, not a text."),
        ({"genres": {"secret": 1}}, "a feature is a text, a number, a list of one of them, or null"),
        ({"genres": [["secret"]]}, "a feature is a text, a number, a list of one of them, or null"),
        ({"genres": "s" * 2001}, "a text may have 2000 characters"),
        ({"genres": ["x"] * 10_001}, "a list may have 10000 values"),
        ({f"f{number}": 1 for number in range(200)}, "a new id may have 200 fields"),
        ({"id": None}, "ids are integers or strings"),
        ({"id": 1.5}, "ids are integers or strings"),
        ({"id": True}, "ids are integers or strings"),
    ],
)
def test_what_is_not_understood_is_refused_in_one_sentence_that_repeats_nothing(trained, run, client, change, sentence):
    answer = client.post("/items", json={"id": trained[2], **change})
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]
    assert "secret" not in answer.text
    assert "s3cret" not in answer.text
    assert not (run / "added_items.jsonl").exists()


@pytest.mark.parametrize("body", [[], 7, "film", [[]], {}, [{"id": 1}] * 1001])
def test_bodies_of_another_shape_are_refused(client, body):
    assert client.post("/items", json=body).status_code == 422
    assert client.post("/items", content=b"{", headers={"Content-Type": "application/json"}).status_code == 422


def test_an_id_of_the_other_kind_is_refused(trained, client):
    wrong = 5 if isinstance(trained[2], str) else "5"
    assert client.post("/items", json={"id": wrong}).status_code in (404, 422)


def test_a_run_without_features_cannot_be_told_of_new_ids(tmp_path):
    with TestClient(app_for(write_run(tmp_path / "plain"))) as client:
        answer = client.post("/items", json={"id": 77})
        assert answer.status_code == 404
        assert "trained without item features" in answer.json()["detail"]


def test_the_token_is_needed_and_from_other_machines_there_must_be_one(trained, run):
    body = {"id": trained[2], "genres": GENRES[0]}
    with TestClient(app_for(run, token="pass")) as client:
        assert client.post("/items", json=body).status_code == 401
        assert client.post("/users", json=body).status_code == 401
        assert client.post("/items", json=body, headers={"Authorization": "Bearer pass"}).status_code == 200
    with TestClient(app_for(run, reload_allowed=False)) as client:
        assert client.post("/items", json=body).status_code == 403


def test_a_full_disk_is_told_and_nothing_changes(trained, run, client, monkeypatch):
    from tableless.recommender import added_ids

    def fail(path, line):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(added_ids, "append_line", fail)
    before = client.get("/facts").json()["num_items"]
    answer = client.post("/items", json={"id": trained[2]})
    assert answer.status_code == 500
    assert str(run) not in answer.text
    assert client.get("/facts").json()["num_items"] == before
    assert client.get("/neighbors", params={"id": trained[2]}).json()["known"] is False


def test_facts_say_which_features_a_new_id_may_have(client):
    features = client.get("/facts").json()["features"]
    assert features["item"] == [{"name": "genres", "kind": "tags"}, {"name": "year", "kind": "number"}]
    assert [each["name"] for each in features["user"]] == ["taste", "age"]


def test_every_line_of_the_store_is_one_call(trained, run, client):
    for number in range(3):
        client.post("/users", json=[{"id": 10**12 + number}, {"id": 10**13 + number}])
    lines = [json.loads(line) for line in (run / "added_users.jsonl").read_text().splitlines()]
    assert [len(line["rows"]) for line in lines] == [2, 2, 2]

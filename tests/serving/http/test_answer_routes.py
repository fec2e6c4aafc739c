import pytest
import torch
from fastapi.testclient import TestClient

from .tiny_run import NUM_ITEMS, app_for, load, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def client(run):
    """One for all tests here: they ask, and change nothing."""
    with TestClient(app_for(run)) as client:
        yield client


@pytest.mark.parametrize("users", [[5], [5, 6, -7]])
def test_scores_are_those_of_the_model(client, run, users):
    items = [1, 2, 2**40]
    answer = client.post("/score", json={"users": users, "items": items})
    expected = load(run).score(torch.tensor(users), torch.tensor(items)).tolist()
    assert answer.json()["scores"] == pytest.approx(expected, abs=1e-6)


def test_numbers_that_make_no_pairs_are_refused(client):
    answer = client.post("/score", json={"users": [1, 2], "items": [1, 2, 3]})
    assert answer.status_code == 422
    assert "2 users and 3 items" in answer.json()["detail"]


def test_a_new_user_gets_recommendations_by_get_and_post_alike(client, run):
    by_address = client.get("/recommend", params={"user": "987654321", "count": 3})
    by_body = client.post("/recommend", json={"user": 987654321, "count": 3})
    assert by_address.status_code == 200
    assert by_address.json() == by_body.json()
    best = load(run).recommend(987654321, count=3)
    assert [item["item"] for item in by_body.json()["items"]] == [item.item for item in best]


def test_ids_in_an_address_are_of_the_kind_that_the_data_has(tmp_path):
    run = write_run(tmp_path / "run", kind="string")
    with TestClient(app_for(run)) as client:
        assert client.get("/recommend", params={"user": "7"}).json()["user"] == "7"
        neighbors = client.get("/neighbors", params={"id": "item 3", "count": 2}).json()
    assert neighbors["id"] == "item 3"
    assert [neighbor["id"] for neighbor in neighbors["neighbors"]] == [
        neighbor.id for neighbor in load(run).neighbors("item 3", count=2)
    ]


@pytest.mark.parametrize("text", ["abc", "1.5", str(2**63), "9" * 500])
def test_text_that_can_be_no_id_of_the_data_is_not_found(client, text):
    assert client.get("/recommend", params={"user": text}).status_code == 404
    assert client.get("/neighbors", params={"id": text}).status_code == 404


def test_users_have_no_neighbours_where_the_run_lists_none_and_no_path_is_told(client, run):
    answer = client.get("/neighbors", params={"id": "1", "side": "user"})
    assert answer.status_code == 404
    assert str(run.parent) not in answer.text


@pytest.mark.parametrize("count", ["0", "-1", "1001", "x", "1e9"])
def test_a_count_outside_its_range_is_refused(client, count):
    for address in ("/recommend?user=1", "/neighbors?id=1", "/items?query="):
        assert client.get(f"{address}&count={count}").status_code == 422


def test_items_are_found_and_stand_on_the_map(client):
    found = client.get("/items", params={"query": "1", "count": 2}).json()["items"]
    assert [item["item"] for item in found] == [1, 11]  # the one itself, then the most popular that begin with 1
    points = client.get("/map").json()["points"]
    assert sorted(point["item"] for point in points) == list(range(NUM_ITEMS))


def test_answers_say_whether_an_id_is_known_and_null_where_the_run_lists_no_users(client):
    assert client.get("/recommend?user=5").json()["known"] is None
    assert client.post("/recommend", json={"user": 5}).json()["known"] is None
    assert client.get("/neighbors?id=5").json()["known"] is True
    assert client.get("/neighbors?id=500").json()["known"] is False
    scored = client.post("/score", json={"users": [5], "items": [1, 500]}).json()
    assert scored["known"] == {"users": None, "items": [True, False]}
    assert client.post("/embed", json={"ids": [500, 3]}).json()["known"] == [False, True]
    assert client.post("/embed?side=user", json={"ids": [5]}).json()["known"] is None


def test_a_table_knows_its_users_and_does_not_repeat_an_id_that_it_has_no_row_for(tmp_path):
    with TestClient(app_for(write_run(tmp_path / "run", scheme="full"))) as client:
        assert client.get("/recommend?user=5").json()["known"] is True
        missing = client.get("/recommend?user=987654321")
    assert missing.status_code == 404
    assert "987654321" not in missing.text
    assert "no row for user number 1" in missing.text


def test_the_schema_says_what_known_means(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name in ("RecommendAnswer", "NeighborsAnswer", "VectorsAnswer"):
        assert "Null: the run does not list its users" in schemas[name]["properties"]["known"]["description"]


def test_the_documentation_shows_code_and_no_backticks(client):
    page = client.get("/docs").text
    assert "`" not in page
    assert "<code>exact</code>" in page

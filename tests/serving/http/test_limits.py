import asyncio
import logging

import pytest
from fastapi.testclient import TestClient

from tableless.serving.http.app import build_app
from tableless.serving.settings import ServerSettings

from .tiny_run import HeldModel, app_for


async def call(app, path, *chunks, method="POST", pause=0.0, headers=()):
    """One request to an application, its body in chunks: status, headers, body."""
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    sent = []

    async def receive():
        if len(messages) == 1:
            await asyncio.sleep(pause)
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "http_version": "1.1"}
    scope |= {"headers": [(b"content-type", b"application/json"), *headers], "root_path": "", "scheme": "http"}
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], dict(sent[0]["headers"]), body


def test_a_body_that_announces_too_much_is_refused_unread(run):
    with TestClient(app_for(run, max_body_bytes=100)) as client:
        assert client.post("/embed", json={"ids": [1] * 20}).status_code == 200
        answer = client.post("/embed", json={"ids": [1] * 100})
    assert answer.status_code == 413
    assert "100 bytes" in answer.json()["detail"]


def test_a_body_that_announces_nothing_is_refused_when_it_is_too_large(run):
    app = app_for(run, max_body_bytes=100)
    status, headers, _ = asyncio.run(call(app, "/embed", *[b" " * 30] * 10))
    assert status == 413
    assert headers[b"connection"] == b"close"
    assert asyncio.run(call(app, "/embed", b'{"ids"', b": [1]}"))[0] == 200


def test_more_bytes_than_all_requests_may_hold_are_refused(run):
    app = app_for(run, max_body_bytes=100, max_in_flight=1)

    async def two_slow_ones():
        return await asyncio.gather(*(call(app, "/embed", b" " * 60, pause=0.2) for _ in range(2)))

    assert sorted(status for status, _, _ in asyncio.run(two_slow_ones())) == [422, 503]


def test_a_slow_body_is_not_waited_for(run):
    status, _, body = asyncio.run(call(app_for(run, time_limit=0.1), "/embed", b"{", pause=10))
    assert status == 408
    assert b"0.1 seconds" in body


@pytest.mark.parametrize("path", ["/embed", "/score"])
def test_more_ids_than_allowed_are_refused(run, path):
    with TestClient(app_for(run, max_ids=3)) as client:
        few, many = [1, 2, 3], [1, 2, 3, 4]
        assert client.post(path, json={"ids": few} if path == "/embed" else {"users": few, "items": few}).is_success
        answer = client.post(path, json={"ids": many} if path == "/embed" else {"users": [1], "items": many})
    assert answer.status_code == 413
    assert "has 4" in answer.json()["detail"]


@pytest.fixture
def held(run):
    """An application that answers nothing until it is let go, and its model."""
    models = []

    def load(directory):
        models.append(HeldModel.from_pretrained(directory))
        return models[-1]

    app = build_app(run, load, ServerSettings(max_in_flight=2, time_limit=0.5))
    yield app, models[0]
    models[0].go.set()


def test_what_is_too_much_is_turned_away_at_once_and_the_rest_answered(held):
    app, model = held

    async def story():
        first = [asyncio.create_task(call(app, "/embed", b'{"ids": [1]}')) for _ in range(2)]
        await asyncio.to_thread(model.was_asked.wait, 20)
        await asyncio.sleep(0)
        status, headers, _ = await call(app, "/embed", b'{"ids": [1]}')
        assert (status, headers[b"retry-after"]) == (503, b"1")
        assert (await call(app, "/healthz", method="GET"))[0] == 200
        assert (await call(app, "/metrics", method="GET"))[0] == 200
        model.go.set()
        assert [(await task)[0] for task in first] == [200, 200]
        assert (await call(app, "/embed", b'{"ids": [1]}'))[0] == 200

    asyncio.run(story())


def test_slow_senders_take_nobody_s_place(held):
    app, model = held
    model.go.set()

    async def story():
        slow = [asyncio.create_task(call(app, "/embed", b"{", pause=0.3)) for _ in range(10)]
        await asyncio.sleep(0.05)
        assert (await call(app, "/embed", b'{"ids": [1]}'))[0] == 200
        for task in slow:
            await task

    asyncio.run(story())


def test_an_answer_that_takes_too_long_is_given_up_and_its_place_is_free_again(held):
    app, model = held

    async def story():
        late = await asyncio.gather(*(call(app, "/embed", b'{"ids": [1]}') for _ in range(2)))
        assert [status for status, _, _ in late] == [504, 504]
        model.go.set()
        assert (await call(app, "/embed", b'{"ids": [1]}'))[0] == 200

    asyncio.run(story())


def test_with_a_token_only_those_who_show_it_are_answered(run):
    with TestClient(app_for(run, token="sesame")) as client:
        for headers in ({}, {"Authorization": "Bearer sesam"}, {"Authorization": "Basic sesame"}):
            answer = client.post("/embed", json={"ids": [1]}, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert client.post("/reload", json={}, headers=headers).status_code == 401
            assert client.get("/metrics", headers=headers).status_code == 401
        assert client.post("/embed", json={"ids": [1]}, headers={"Authorization": "bearer sesame"}).is_success
        for path in ("/healthz", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert client.get("/openapi.json").json()["security"] == [{"token": []}]


def test_a_failure_of_ours_is_one_sentence_and_nothing_of_the_request_is_logged(run, caplog):
    class Failing(HeldModel):
        def items_matching(self, text, *, count=20):
            raise KeyError(text)

    with (
        caplog.at_level(logging.DEBUG),
        TestClient(build_app(run, Failing.from_pretrained, ServerSettings())) as client,
    ):
        answer = client.get("/items", params={"query": "s3cret"})
    assert answer.status_code == 500
    assert answer.json() == {"detail": "The server failed to answer; its log says where."}
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("tableless", "uvicorn"))]
    assert len(ours) == 1
    assert "KeyError in items_matching" in ours[0]
    assert "s3cret" not in ours[0]


@pytest.mark.parametrize(
    "wrong", [{"max_ids": 0}, {"time_limit": 0}, {"time_limit": float("nan")}, {"token": ""}, {"token": "ü"}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        ServerSettings(**wrong)

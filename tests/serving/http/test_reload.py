import asyncio
import gc
import threading
import time
import weakref

import pytest
from fastapi.testclient import TestClient

from tableless.serving.http.app import build_app
from tableless.serving.settings import ServerSettings

from .test_limits import call
from .tiny_run import HeldModel, app_for, load, write_run


def vectors(client):
    return client.post("/embed", json={"ids": [1, 2]}).json()["vectors"]


def test_another_run_takes_over_and_can_be_taken_back(client, run):
    write_run(run.parent / "second", seed=5)
    before = vectors(client)
    assert client.post("/reload", json={"run": "second"}).json()["run"] == "second"
    assert vectors(client) != before
    assert client.post("/reload", json={"run": str(run)}).json()["run"] == "first"
    assert vectors(client) == before


def test_without_a_name_the_same_directory_is_read_again(client, run):
    before = vectors(client)
    write_run(run, seed=5)
    assert vectors(client) == before
    assert client.post("/reload", json={}).status_code == 200
    assert vectors(client) != before


@pytest.mark.parametrize("name", ["..", ".", "../..", "/etc", "../elsewhere", "first/../../elsewhere", "link", ""])
def test_nothing_outside_can_be_loaded(client, run, name):
    write_run(run.parent.parent / "elsewhere")
    (run.parent / "link").symlink_to(run.parent.parent / "elsewhere")
    answer = client.post("/reload", json={"run": name})
    assert answer.status_code == (403 if name else 422)
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("name", ["a\0b", "x" * 900, "nowhere"])
def test_names_of_nothing_are_refused(client, name):
    assert client.post("/reload", json={"run": name}).status_code in (404, 422)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"\xff", b'{"model": {"backbone": "exec"}}'])
def test_a_broken_run_is_refused_and_the_one_before_still_served(client, run, content):
    broken = write_run(run.parent / "broken")
    (broken / "config.json").write_bytes(content)
    before = vectors(client)
    answer = client.post("/reload", json={"run": "broken"})
    assert answer.status_code == 422
    assert str(run.parent) not in answer.text
    assert vectors(client) == before


def test_a_model_file_that_was_cut_short_is_refused(client, run):
    weights = write_run(run.parent / "broken") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert client.post("/reload", json={"run": "broken"}).status_code == 422
    assert client.post("/reload", json={}).status_code == 200


def test_where_reloading_is_not_allowed_it_is_refused(run):
    with TestClient(app_for(run, reload_allowed=False)) as client:
        assert client.post("/reload", json={}).status_code == 403


def test_a_request_in_flight_finishes_with_the_model_it_began_with(run):
    write_run(run.parent / "second", seed=5)
    models = []

    def load_held(directory):
        models.append(HeldModel.from_pretrained(directory))
        return models[-1]

    app = build_app(run, load_held, ServerSettings())

    async def story():
        begun = asyncio.create_task(call(app, "/embed", b'{"ids": [1]}'))
        await asyncio.to_thread(models[0].was_asked.wait, 20)
        assert (await call(app, "/reload", b'{"run": "second"}'))[0] == 200
        for model in models:
            model.go.set()
        later = await call(app, "/embed", b'{"ids": [1]}')
        assert (await begun)[0] == later[0] == 200
        assert (await begun)[2] != later[2]

    asyncio.run(story())
    assert [len(model.batches) for model in models] == [1, 1]


def test_a_second_reload_meanwhile_is_told_so(run):
    go, is_loading = threading.Event(), threading.Event()

    def load_slowly(directory):
        is_loading.set()
        assert go.wait(timeout=20)
        return load(directory)

    go.set()
    app = build_app(run, load_slowly, ServerSettings())

    async def story():
        go.clear()
        is_loading.clear()
        first = asyncio.create_task(call(app, "/reload", b"{}"))
        await asyncio.to_thread(is_loading.wait, 20)
        assert (await call(app, "/embed", b'{"ids": [1]}'))[0] == 200
        assert (await call(app, "/reload", b"{}"))[0] == 409
        go.set()
        assert (await first)[0] == 200
        assert (await call(app, "/reload", b"{}"))[0] == 200

    asyncio.run(story())


def test_models_that_were_replaced_are_forgotten(run):
    models = []

    def load_watched(directory):
        model = load(directory)
        models.append(weakref.ref(model))
        return model

    with TestClient(build_app(run, load_watched, ServerSettings())) as client:
        for _ in range(3):
            vectors(client)
            assert client.post("/reload", json={}).status_code == 200
        vectors(client)
        for _ in range(100):  # until their threads have ended
            gc.collect()
            if [model() is None for model in models] == [True, True, True, False]:
                return
            time.sleep(0.1)
    pytest.fail("a model that was replaced is still there")

import json
import time

import pytest
from fastapi.testclient import TestClient

from tableless.recommender.run_directory import RunDirectory

from .tiny_run import app_for, write_run


@pytest.fixture
def follower(run, monkeypatch):
    monkeypatch.setattr("tableless.serving.http.following._PAUSE", 0.02)
    with TestClient(app_for(run, follow=True)) as client:
        yield client


def vectors(client):
    answer = client.post("/embed", json={"ids": [1, 2]})
    assert answer.status_code == 200
    return answer.json()["vectors"]


def wait_for(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_new_checkpoints_are_taken_over_and_no_request_is_dropped(follower, run):
    known = [vectors(follower)]
    for seed in (5, 7):
        write_run(run, seed=seed)
        wait_for(lambda: vectors(follower) not in known)
        known.append(vectors(follower))
    assert "tableless_reloads_total 2.0" in follower.get("/metrics").text


def test_a_broken_checkpoint_is_passed_over_and_the_next_is_taken(follower, run):
    before = vectors(follower)
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(whole[:100])
    time.sleep(0.3)
    assert vectors(follower) == before
    write_run(run, seed=5)
    wait_for(lambda: vectors(follower) != before)


def test_metrics_say_how_the_stream_goes(follower, run):
    assert "tableless_stream" not in follower.get("/metrics").text
    events = {"learned": 900, "malformed": 3}
    results = {"auc": 0.75, "recent_auc": 0.875, "popular_auc": None, "actions": 900, "written": time.time() - 100}
    RunDirectory(run).write_results({**results, "evictions": {"user": 5, "item": 2}, "events": events})
    text = follower.get("/metrics").text
    assert "tableless_stream_recent_auc 0.875" in text
    assert 'tableless_stream_evictions{side="user"} 5.0' in text
    assert 'tableless_stream_events{kind="malformed"} 3.0' in text
    assert "tableless_stream_popular_auc" not in text.replace("# ", "")
    (lag,) = [line for line in text.splitlines() if line.startswith("tableless_stream_lag_seconds")]
    assert 100 <= float(lag.split()[1]) < 160


def test_without_follow_nothing_is_taken_over(run, monkeypatch):
    monkeypatch.setattr("tableless.serving.http.following._PAUSE", 0.02)
    with TestClient(app_for(run)) as client:
        before = vectors(client)
        write_run(run, seed=5)
        time.sleep(0.3)
        assert vectors(client) == before
        assert json.loads((run / "config.json").read_text())["model"]["users"]["arguments"]["seed"] == 5

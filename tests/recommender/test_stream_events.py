import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tableless
from tableless import cli
from tableless.files.whole import load_tensors
from tests.recommender.test_stream_learner import actions

ARGUMENTS = [
    "--stream",
    "--budget",
    "60KB",
    "--embedding-dim",
    "8",
    "--batch-size",
    "100",
    "--half-life",
    "500",
    "--json",
]


def events(count=3_000, seed=0):
    users, items = actions(count, seed)
    return [
        json.dumps({"user": f"u{user}", "item": int(item), "time": 1000 + number})
        for number, (user, item) in enumerate(zip(users, items, strict=True))
    ]


def train(source, out, *more, stdin=None):
    done = CliRunner().invoke(cli.app, ["train", str(source), *ARGUMENTS, "--out", str(out), *more], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout.splitlines()[-1])


def state(out):
    """What was learned, without what only says when and where."""
    return {name: value for name, value in load_tensors(out / "stream.safetensors").items() if name != "meta"}


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert [name for name, value in one.items() if not torch.equal(value, other[name])] == []


def test_json_lines_are_learned_and_the_run_answers(tmp_path):
    (tmp_path / "events.jsonl").write_text("\n".join(events()) + "\n")
    result = train(tmp_path / "events.jsonl", tmp_path / "run")
    assert result["actions"] == result["events"]["learned"] == 3_000
    model = tableless.load(tmp_path / "run")
    assert model.recommend("u-1099511627776", count=3)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["evictions"].keys() == {"user", "item"}


def test_a_csv_and_a_directory_of_files_give_what_one_file_of_json_gives(tmp_path):
    lines = events(1_000)
    rows = [json.loads(line) for line in lines]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))  # without an end
    header, texts = "time;item_id;user_id", [f"{row['time']};{row['item']};{row['user']}" for row in rows]
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "01.csv").write_text("\n".join([header, *texts[:450]]) + "\n")
    (tmp_path / "parts" / "02.csv").write_text("\r\n".join([header, *texts[450:]]) + "\r\n")
    results = [train(tmp_path / source, tmp_path / f"run {source}") for source in ("all.jsonl", "parts")]
    assert [result["actions"] for result in results] == [1_000, 1_000]
    assert results[0]["recent_auc"] == pytest.approx(results[1]["recent_auc"], abs=0.03)  # a header takes a place


def test_what_is_wrong_is_counted_and_never_an_end(tmp_path):
    lines = events(500)
    bad = ["{", "[1]", "no json", '{"user": "u"}', '{"user": null, "item": 3}', '{"user": "u", "item": "x"}']
    bad += [
        '{"user": "u", "item": 1e400}',
        '{"user": "u", "item": 99999999999999999999}',
        '{"user": "u", "item": true}',
    ]
    bad += ['{"user": "u", "item": 4, "time": "whenever"}', "[" * 100_000, '{"user": "u", "item": {}}', "\x00\xff"]
    mixed = [*lines[:250], *bad, "", lines[7], lines[8], *lines[250:], lines[7]]
    old = '{"user": "a", "item": 5, "time": 3}'
    before = '{"user": "b", "item": 5, "time": "1970-01-01T00:23:19Z"}'  # 1399 s, and the 400th has 1400
    mixed = [*mixed[:50], *mixed[50:418], before, *mixed[418:], old]
    (tmp_path / "events.jsonl").write_bytes("\n".join(mixed).encode("latin-1") + b"\n")
    counts = train(tmp_path / "events.jsonl", tmp_path / "run")["events"]
    assert counts["learned"] == 502
    assert counts["malformed"] == len(bad)
    assert counts["repeated"] == 3
    assert counts["late"] == 1
    assert counts["out of order"] == 1


def test_a_second_start_goes_on_with_what_is_new(tmp_path):
    lines, source = events(2_000), tmp_path / "events.jsonl"
    source.write_text("\n".join(lines) + "\n")
    train(source, tmp_path / "whole")
    source.write_text("\n".join(lines[:1_000]) + "\n")
    train(source, tmp_path / "run")
    with source.open("a") as file:
        file.write("\n".join(lines[1_000:]) + "\n")
    again = train(source, tmp_path / "run")
    assert again["actions"] == 2_000
    assert_same(state(tmp_path / "run"), state(tmp_path / "whole"))


def test_another_source_and_another_size_are_refused(tmp_path):
    for name in ("one.jsonl", "other.jsonl"):
        (tmp_path / name).write_text("\n".join(events(300)) + "\n")
    train(tmp_path / "one.jsonl", tmp_path / "run")
    with pytest.raises(ValueError, match=r"learned from .*one.jsonl and not from .*other.jsonl; give that again"):
        train(tmp_path / "other.jsonl", tmp_path / "run")
    with pytest.raises(ValueError, match="a learner of another size"):
        train(tmp_path / "one.jsonl", tmp_path / "run", "--budget", "90KB")
    with pytest.raises(ValueError, match=r"begun with other settings \(half_life\)"):
        train(tmp_path / "one.jsonl", tmp_path / "run", "--half-life", "50")
    (tmp_path / "one.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="is shorter than what was read of it already"):
        train(tmp_path / "one.jsonl", tmp_path / "run")


def test_a_stream_may_begin_with_what_another_run_learned(tmp_path):
    lines = events(4_000)
    (tmp_path / "history.jsonl").write_text("\n".join(lines[:3_000]) + "\n")
    (tmp_path / "new.jsonl").write_text("\n".join(lines[3_000:]) + "\n")
    train(tmp_path / "history.jsonl", tmp_path / "history")
    fresh = train(tmp_path / "new.jsonl", tmp_path / "fresh")
    begun = train(tmp_path / "new.jsonl", tmp_path / "begun", "--from", str(tmp_path / "history"))
    assert begun["recent_auc"] > fresh["recent_auc"] + 0.02
    with pytest.raises(ValueError, match="was not learned from a stream of events"):
        train(tmp_path / "new.jsonl", tmp_path / "other", "--from", str(tmp_path))


def command(source, out, *more):
    arguments = [sys.executable, "-m", "tableless", "train", str(source), *ARGUMENTS, "--out", str(out)]
    return [*arguments, "--checkpoint-seconds", "0.05", *more]


def test_killed_again_and_again_it_learns_every_event_once(tmp_path):
    """Files may grow meanwhile. Each process is killed some time after it has written its first checkpoint."""
    lines, source, out = events(6_000), tmp_path / "events.jsonl", tmp_path / "run"
    random, written, killed = np.random.default_rng(0), 0, 0
    source.write_text("")
    for turn in range(4):
        upto = 1_500 * (turn + 1)
        with source.open("a") as file:
            file.write("\n".join(lines[written:upto]) + "\n")
        written = upto
        before = (out / "stream.safetensors").stat().st_mtime_ns if turn else 0
        process = subprocess.Popen(command(source, out, "--follow"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 200
        while not ((out / "stream.safetensors").exists() and (out / "stream.safetensors").stat().st_mtime_ns > before):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += 1
        tensors = load_tensors(out / "stream.safetensors")
        assert tensors["numbers"][2] <= upto
    result = train(source, out)
    assert killed == 4
    assert result["actions"] == 6_000
    assert sum(result["events"].values()) == 6_000, "none was repeated"
    assert tableless.load(out).recommend("u-1099511627776", count=3)


def test_what_came_by_standard_input_is_kept_in_a_journal(tmp_path):
    lines, out = events(2_000), tmp_path / "run"
    process = subprocess.Popen(
        command("-", out, "--checkpoint-seconds", "1000"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    os.write(process.stdin.fileno(), ("\n".join(lines[:1_000]) + "\n").encode()[:60_000])
    sent = ("\n".join(lines[:1_000]) + "\n").encode()[:60_000].count(b"\n")
    deadline = time.monotonic() + 200
    while not (out / "stream.journal").exists() or (out / "stream.journal").read_bytes().count(b"\n") < sent + 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.stdin.close()
    process.wait()
    assert not (out / "stream.safetensors").exists()
    done = subprocess.run(
        command("-", out), input=("\n".join(lines[sent:]) + "\n").encode(), capture_output=True, check=True
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["actions"] == 2_000
    assert not (out / "stream.journal").exists()

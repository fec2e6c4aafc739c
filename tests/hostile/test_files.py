"""Run directories from a stranger: data, never code, and never more memory than their own size."""

import json
import os
import pickle
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import tableless
from tableless import DeepHashEmbedding, SideFeatures, load_scheme, save_scheme
from tableless.data.config import recorded_data
from tableless.data.interactions import Interactions
from tableless.files.whole import load_tensors, save_tensors
from tableless.serving import hub
from tableless.serving.export.formats import write_file
from tests.data.tiny import interactions_of
from tests.serving.http.tiny_run import write_run

SOURCE = Path(tableless.__file__).parent


class Bomb:
    """Unpickling it would make a directory called `harm`."""

    def __reduce__(self):
        return os.mkdir, ("harm",)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "items.parquet", "results.json"])
def test_a_pickle_in_the_place_of_a_file_is_refused_and_not_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (write_run(tmp_path / "run") / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=re.escape(name)):
        tableless.load(tmp_path / "run")
    torch.save(Bomb(), tmp_path / "run" / name)
    with pytest.raises(ValueError, match=re.escape(name)):
        tableless.load(tmp_path / "run")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["user_ids.npy", "items.npy"])
def test_a_pickle_among_prepared_interactions_is_refused_and_not_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interactions_of([0, 1], [1], num_items=3).save(tmp_path / "data")
    np.save(tmp_path / "data" / name, np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"allow_pickle=False|Python objects"):
        Interactions.load(tmp_path / "data")
    assert not (tmp_path / "harm").exists()


def test_nothing_in_the_library_unpickles_or_evaluates_anything():
    risky = re.compile(r"\b(import pickle|torch\.load\(|allow_pickle=True|joblib|cloudpickle)|(?<![\w.])(eval|exec)\(")
    for path in SOURCE.rglob("*.py"):
        assert risky.search(path.read_text()) is None, path


def test_an_exported_program_holds_no_pickle(tmp_path):
    write_file(DeepHashEmbedding(4, width=4, num_hashes=4, depth=1).eval(), tmp_path / "x.pt2", "torch",
               inputs=("ids",), output="vectors")  # fmt: skip
    with zipfile.ZipFile(tmp_path / "x.pt2") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert any(name.endswith("model.json") for name in members)
    for name, content in members.items():
        assert not content.startswith((b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05")), name
        assert b".pkl" not in content, name


# In a process with hardly more memory than it has: what is refused is refused before memory is taken.
ABSURD = """
    import json, resource, sys
    import torch
    from tableless import load_scheme
    from tests.counted_calls import counted_calls

    torch.set_num_threads(1)
    lines = [json.loads(line) for line in open(sys.argv[1])]
    for directory in {directory for directory, _ in lines}:  # torch imports what it needs, and loops are compiled
        load_scheme(directory)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 256 * 2**20,) * 2)
    for directory, text in lines:
        with open(directory + "/config.json", "w") as file:
            file.write(text)
        with counted_calls() as calls:
            try:
                said = load_scheme(directory) and "loaded"
            except ValueError as error:
                said = "refused " + str(error)
        print(json.dumps([said, calls.total]))
"""
HUGE = [10**9, 10**15, 10**30, int("9" * 4000)]
NONSENSE = ["8", None, 8.5, [8], {}, True, -1, 0, float("nan"), float("inf"), "x" * 10_000]


def configs(directory: Path):
    """The config of a saved scheme with each of its arguments made absurd, one after the other."""
    config = json.loads((directory / "config.json").read_text())
    arguments = config["arguments"]
    for name, own in arguments.items():
        for value in HUGE + NONSENSE:
            yield json.dumps({**config, "arguments": {**arguments, name: value}})
        if isinstance(own, dict):
            for inner in own:
                for value in HUGE + NONSENSE[:4]:
                    yield json.dumps({**config, "arguments": {**arguments, name: {**own, inner: value}}})
        others = {key: arguments[key] for key in arguments.keys() - {name}}
        yield json.dumps({**config, "arguments": others})
    for key in config:
        for value in [*HUGE, *NONSENSE]:
            yield json.dumps({**config, key: value})
        yield json.dumps({other: config[other] for other in config.keys() - {key}})
    yield json.dumps({**config, "arguments": {**arguments, "shell": "rm"}})
    yield '{"scheme":' * 50_000
    yield json.dumps(config).replace("{", '{"x": 1e99999, ', 1)
    yield json.dumps(config).replace("{", '{"x": ' + "9" * 5000 + ", ", 1)


def test_absurd_configs_are_refused_in_a_sentence_before_memory_is_taken(tmp_path):
    side = SideFeatures.from_matrix([1, 2], [[1.0, 2.0], [3.0, 4.0]], num_bits=4)
    network = {"width": 3, "depth": 1, "num_hashes": 4}
    made = {
        "dhe": DeepHashEmbedding(4, **network, num_experts=2, side_features=side),
        "random-fourier": DeepHashEmbedding(4, **network, encoding="random-fourier", vocab_size=9),
        "head-and-tail": tableless.SCHEMES["head-and-tail"](4, num_frequent=3, network=network),
    }
    for name in tableless.SCHEMES.keys() - {"dhe", "head-and-tail"}:
        made[name] = tableless.SCHEMES[name].from_budget(4000, embedding_dim=4, vocab_size=40)
    lines = []
    for name, scheme in made.items():
        save_scheme(scheme, tmp_path / name)
        lines += [(str(tmp_path / name), text) for text in configs(tmp_path / name)]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ABSURD), str(tmp_path / "lines")],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(lines)
    assert sum(text == "loaded" for text, _ in said) < 0.4 * len(said)  # a seed, for instance, may be any number
    for (_, config), (text, calls) in zip(lines, said, strict=True):
        assert "\n" not in text, (config, text)
        assert calls < 100_000, (config[:300], text, calls)  # 12,510 for most of those that are loaded


def test_a_config_may_not_ask_for_more_than_the_weights_beside_it(tmp_path):
    save_scheme(tableless.SCHEMES["full"](4, vocab_size=10), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["arguments"]["vocab_size"] = 10**12
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"does not belong to the config.json beside it: .*size mismatch for table"):
        load_scheme(tmp_path)


def test_a_config_of_many_gigabytes_is_refused_unread(tmp_path):
    save_scheme(tableless.SCHEMES["full"](4, vocab_size=10), tmp_path)
    with (tmp_path / "config.json").open("ab") as file:
        file.truncate(1 << 36)  # sparse: it takes no room
    with pytest.raises(ValueError, match=r"config.json has 68,719,476,736 bytes"):
        load_scheme(tmp_path)


@pytest.mark.parametrize("change", [{"kinds": None}, {"kinds": {"user": "float"}}, {"model": None}, {"model": {}}])
def test_a_run_whose_config_lacks_what_answers_need_is_refused(change, tmp_path):
    config = json.loads((write_run(tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=r"config.json does not"):
        tableless.load(tmp_path)


@pytest.mark.parametrize("name", ["../../etc", "a/..", "a/../b", "/etc", "a/b/c", ".cache/x", "a\\b/c", "a/b\0"])
def test_a_name_that_leads_elsewhere_is_not_asked_of_the_hub(name, monkeypatch, tmp_path):
    def asked(repo_id, **_):
        raise AssertionError(f"the hub was asked for {repo_id!r}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", asked)
    with pytest.raises((ValueError, OSError)):
        tableless.load(name)


def test_only_files_that_cannot_hold_code_come_from_the_hub(monkeypatch, tmp_path):
    wanted = {}
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **options: wanted.update(options) or tmp_path)
    hub.fetch("someone/model")
    assert {Path(name).suffix for name in wanted["allow_patterns"]} == {".json", ".jsonl", ".safetensors", ".parquet"}
    assert not any("*" in name or "/" in name for name in wanted["allow_patterns"])


@pytest.mark.parametrize(("ids", "rows"), [((3,), (3, 5)), ((3,), (2, 2)), ((3, 1), (3, 2)), ((), (2,))])
def test_side_features_that_do_not_go_with_their_ids_are_refused(ids, rows, tmp_path):
    side = SideFeatures.from_matrix([1, 2], [[1.0, 2.0], [3.0, 4.0]])
    save_scheme(DeepHashEmbedding(4, width=3, depth=1, num_hashes=4, side_features=side), tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")
    prefix = "encoder.side_features."
    wrong = {prefix + "ids": torch.zeros(ids, dtype=torch.int64), prefix + "rows": torch.zeros(rows)}
    save_tensors(weights | wrong, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"does not belong to the config.json beside it: side features of shape"):
        load_scheme(tmp_path)


@pytest.mark.parametrize("data", [None, "movielens-1m", {}, {"data": 7}, {"data": "x.csv", "run": "harm"}])
def test_a_run_that_does_not_say_which_data_it_knows_is_refused_with_a_sentence(data):
    with pytest.raises(ValueError, match="data"):
        recorded_data({"data": data})

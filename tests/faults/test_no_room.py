"""A disk that is full, and a directory that cannot be written to: a sentence, and what was there before is kept."""

import os
import subprocess
import sys
import textwrap

import pytest

from tableless.data.config import DataConfig
from tableless.recommender.journal import TrainingJournal
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.stream_runs import run_stream
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_split

DATA = DataConfig(data="world:users=200,items=120,actions=6000,clusters=4")

# A limit on the size of files is a disk that is full at any moment one likes; without the signal, writing fails.
FULL = """
    import json, resource, signal, sys
    from pathlib import Path
    import polars as pl
    import torch
    from tableless import load_scheme, save_scheme
    from tableless.files.whole import save_tensors
    from tableless.files.whole import write_text
    from tableless.recommender.comparison_report import save_comparison_picture
    from tableless.files.whole import append_line, read_lines
    from tableless.recommender.run_directory import RunDirectory, item_list
    from tableless.embedding.schemes import SCHEMES
    from tableless.serving.bulk.embed_files import embed_file
    from tableless.serving.export import export_run
    from tests.serving.http.tiny_run import load, write_run

    folder = Path(sys.argv[1])
    run, wide = write_run(folder / "run"), torch.arange(100_000)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "data": {"data": "somewhere"}}))
    pl.DataFrame({"id": wide.numpy()}).write_parquet(folder / "ids.parquet")
    measured = {"auc": 0.9, "ndcg@10": 0.1}
    row = {"backbone": "gmf", "scheme": "full", **measured, "popularity": measured, "bytes_per_id": 1}
    jobs = {
        "weights": lambda: save_tensors({"x": wide}, folder / "weights"),
        "scheme": lambda: save_scheme(SCHEMES["full"](4, vocab_size=500), folder / "scheme"),
        "text": lambda: write_text(folder / "text", "x" * 100_000),
        "items.parquet": lambda: RunDirectory(folder).write_lists(item_list(wide.numpy())),
        "picture.png": lambda: save_comparison_picture([row], folder / "picture.png"),
        "vectors.parquet": lambda: embed_file(run, str(folder / "ids.parquet"), str(folder / "vectors.parquet"),
                                              side="item"),
        "exported": lambda: export_run(run, folder / "exported", format="torch"),
        "lines.jsonl": lambda: append_line(folder / "lines.jsonl", {"x": "y" * 100_000}),
        "copy": lambda: load(run).save_pretrained(folder / "copy"),
    }
    save_scheme(SCHEMES["full"](4, vocab_size=5), folder / "scheme")
    for name in jobs:
        if name not in ("scheme", "exported", "copy", "lines.jsonl"):
            (folder / name).write_bytes(b"the good copy")
    append_line(folder / "lines.jsonl", {"before": 1})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    said = {}
    for name, work in jobs.items():
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
        try:
            work()
        except Exception as error:
            said[name] = error
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for name in jobs:
        print(name, isinstance(said.get(name), (OSError, ValueError)), repr(said.get(name)).replace("\\n", " "))
    for name in jobs:
        if (folder / name).is_file() and name != "lines.jsonl":
            assert (folder / name).read_bytes() == b"the good copy", name
    assert read_lines(folder / "lines.jsonl") == [{"before": 1}]
    assert load_scheme(folder / "scheme").vocab_size == 5
    assert not [path for path in folder.rglob("*.part")], list(folder.rglob("*.part"))
"""


def test_on_a_full_disk_every_writer_fails_in_a_sentence_and_leaves_the_good_copy_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path)],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert len(lines) == 9
    assert all(is_a_sentence == "True" for _, is_a_sentence, _ in lines), done.stdout


@pytest.fixture
def blocked(tmp_path):
    """A place where no directory can be: a file is there. (To root, no directory is read-only.)"""
    (tmp_path / "file").write_text("in the way")
    return tmp_path / "file" / "run"


def test_a_directory_that_cannot_be_written_is_refused_before_training(blocked):
    def never(*_):
        raise AssertionError("it was trained")

    for out in (blocked, blocked.parent):
        with pytest.raises(OSError, match="file"):
            train_and_measure(DATA, ModelConfig(scheme="full"), TrainConfig(), small_split(), out=out, on_batch=never)
        with pytest.raises(OSError, match="file"):
            run_stream(DATA, ModelConfig(budget="9000"), TrainConfig(), out=out)


def test_a_read_only_directory_is_refused_before_training(tmp_path, monkeypatch):
    def read_only(**options):
        raise PermissionError(13, "Permission denied", str(options["dir"]))

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(PermissionError, match="run"):
        TrainingJournal(tmp_path / "run", {}, resume=False)


def test_a_stream_does_not_overwrite_a_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileExistsError, match="holds a run already"):
        run_stream(DATA, ModelConfig(budget="9000"), TrainConfig(), out=tmp_path)

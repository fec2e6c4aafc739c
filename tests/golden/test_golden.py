"""The same everywhere: what ids encode to, and what a trained model of every version answers, in all ways to ask it."""

import json
import os
import subprocess
import sys

import pytest
import torch

import tableless
from tableless import load_scheme, save_scheme
from tableless.recommender.run_directory import RunDirectory
from tableless.serving.export.formats import SUFFIXES, open_file, write_file
from tableless.serving.export.graphs import exportables

from . import schemes
from .answers import codes, expected, from_modules, from_serving, inputs, require_close, runs

every_run = pytest.mark.parametrize("run", runs(), ids=lambda run: run.name)
every_scheme = pytest.mark.parametrize(
    "saved", schemes.saved(), ids=lambda path: f"{path.parent.name.removeprefix('schemes-')} {path.name}"
)


def test_every_kind_of_codes_has_left_a_golden_scheme():
    assert len(schemes.saved()) >= 7


def test_the_codes_of_ids_have_not_changed():
    require_close(codes(), expected())


@every_run
def test_a_run_of_any_version_answers_as_it_did(run):
    require_close(from_modules(RunDirectory(run).read_model()[0]), expected(run))
    require_close(from_serving(run), expected(run))


@every_run
def test_one_id_at_a_time_it_answers_the_same(run):
    model = tableless.load(run)
    users, _ = inputs()
    alone = [model.embed([int(user)], side="user")[0].tolist() for user in users]
    require_close({"users": alone}, {"users": expected(run)["users"]})


@every_run
def test_compiled_it_answers_the_same(run):
    """ "aot_eager" traces all that inductor would; generating C++ takes half a minute."""
    model, _ = RunDirectory(run).read_model()
    model.users, model.items = (torch.compile(side, backend="aot_eager") for side in (model.users, model.items))
    require_close(from_modules(model), expected(run))


@every_run
@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_exported_it_answers_the_same(run, format, tmp_path):
    recommender = exportables(RunDirectory(run).read_model()[0])[-1]
    path = tmp_path / f"recommender{SUFFIXES[format]}"
    write_file(recommender.module, path, format, inputs=tuple(recommender.inputs), output=recommender.output)
    scores = open_file(path, format)(*inputs())
    require_close({"scores": scores.tolist()}, {"scores": expected(run)["scores"]})


def test_another_process_with_more_threads_answers_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.answers", "--threads", "2"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "2"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "answer as they did, 2 threads" in done.stdout


@every_run
def test_what_a_golden_run_says_of_itself_is_the_version_it_is_named_after(run):
    assert json.loads((run / "config.json").read_text())["versions"]["tableless"] == run.name.removeprefix("run-")


@every_scheme
def test_a_saved_scheme_of_codes_answers_as_it_did(saved):
    require_close(schemes.answers(load_scheme(saved)), schemes.expected(saved))


@every_scheme
def test_a_saved_scheme_of_codes_is_written_again_byte_for_byte(saved, tmp_path):
    save_scheme(load_scheme(saved), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()


@pytest.mark.parametrize("saved", [path for path in schemes.saved() if path.name in ("coded-added", "coded-network")])
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_exported_a_saved_scheme_of_codes_answers_as_it_did(saved, tmp_path):
    scheme = load_scheme(saved)
    write_file(scheme.exported(), tmp_path / "scheme.onnx", "onnx", inputs=("ids",), output="vectors")
    vectors = open_file(tmp_path / "scheme.onnx", "onnx")(schemes.asked(scheme))
    require_close({"vectors": vectors.tolist()}, {"vectors": schemes.expected(saved)["vectors"]})

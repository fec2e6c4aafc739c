"""Runs can be stopped and resumed, say under which circumstances they were made, and are drawn to be run again."""

import json
import subprocess

import pytest
from experiments import (
    circumstances,
    repeated,
)
from experiments.__main__ import EXPERIMENTS
from experiments.finished import NOT_RUN
from experiments.running import Experiment, first_seeds_first, key, run_all

from tableless.files.whole import append_line
from tests.experiments.fakes import double


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_runs_are_plain_values_and_no_run_is_asked_for_twice(name):
    runs = EXPERIMENTS[name].runs
    assert len({key(run) for run in runs}) == len(runs) > 0
    assert json.loads(json.dumps(runs)) == list(runs)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_everything_in_an_experiment_has_one_rule_for_stopping(name):
    trainings = [run.get("train", run) for run in EXPERIMENTS[name].runs]
    rules = {(each["epochs"], each["patience"]) for each in trainings if "patience" in each}
    assert len(rules) <= 1


def test_finished_runs_are_not_done_again_and_a_failure_is_a_line(capsys):
    experiment = Experiment("doubling", [{"number": number} for number in range(4)], double)
    append_line(experiment.path, {"number": 1, "results": {"auc": 7.0}, "seconds": 1.0})
    assert [run["number"] for run in experiment.pending()] == [0, 2, 3]
    run_all([experiment], workers=1)
    assert not experiment.pending()
    lines = experiment.lines()
    assert [line.get("results") for line in lines] == [{"auc": 0.0}, {"auc": 7.0}, {"auc": 4.0}, None]
    assert lines[3]["error"] == "too large"
    assert len(experiment.path.read_text().splitlines()) == 4
    assert "[4/4" in capsys.readouterr().err


def test_no_run_is_begun_after_the_time_is_up():
    experiment = Experiment("late", [{"number": number} for number in range(3)], double)
    run_all([experiment], workers=1, minutes=-1)
    assert len(experiment.pending()) == 3


def test_the_first_seed_of_everything_comes_first():
    by_hand = Experiment(
        "by hand", [{"number": number, "seed": seed} for number in range(2) for seed in range(2)], double
    )
    trained = Experiment("trained", [{"number": 2, "train": {"seed": seed}} for seed in range(2)], double)
    once = Experiment("once", [{"number": 0}], double)
    order = [(experiment.name, *run.values()) for experiment, run in first_seeds_first([by_hand, trained, once])]
    assert order == [
        *[("by hand", 0, 0), ("by hand", 1, 0), ("trained", 2, {"seed": 0}), ("once", 0)],
        *[("by hand", 0, 1), ("by hand", 1, 1), ("trained", 2, {"seed": 1})],
    ]


def test_a_line_says_under_which_circumstances_it_was_made_and_is_found_without_them(tmp_path):
    experiment = Experiment("doubling", [{"number": 1}], double)
    run_all([experiment], workers=1)
    (line,) = experiment.lines()
    assert line["machine"]["cpu"]
    assert line["machine"]["cores"] >= 1
    assert set(line["machine"]["flags"]) <= {"avx2", "avx512f", "avx512_vnni"}
    assert line["date"].count("-") == 2
    assert {"commit", "versions", "seconds", "results"} <= line.keys()
    assert key(line) == key({"number": 1})
    assert circumstances.commit(tmp_path) is None, "no git there"


def test_a_commit_is_dirty_if_the_code_was_changed_and_not_if_lines_were(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@y", *arguments], check=True)

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "code.py").write_text("1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    clean = circumstances.commit(tmp_path)
    (tmp_path / "experiments" / "results").mkdir(parents=True)
    (tmp_path / "experiments" / "results" / "table1.jsonl").write_text("{}\n")
    assert circumstances.commit(tmp_path) == clean
    assert "dirty" not in clean
    (tmp_path / "src" / "code.py").write_text("2\n")
    assert circumstances.commit(tmp_path) == f"{clean}-dirty"


def experiments_with_rows():
    """Two experiments with six finished rows together, two of them by the fast recipe."""
    plain = [{"number": number, "seed": seed} for number in range(4) for seed in range(2)]
    recipes_of_rows = ["paper", "fast", "fast"]
    trained = [{"number": n, "train": {"recipe": recipe, "seed": 0}} for n, recipe in enumerate(recipes_of_rows)]
    found = [Experiment("doubling", plain, double), Experiment("training", trained, double)]
    for experiment in found:
        for run in experiment.runs[:6]:
            append_line(experiment.path, {**run, "results": {"auc": 0.5 + run.get("seed", 0) / 10}})
    return found


@pytest.mark.parametrize("draw", range(8))
def test_rows_are_drawn_over_everything_and_the_second_is_by_the_fast_recipe(draw):
    again = repeated.drawn(experiments_with_rows(), 2, draw)
    first, second = (next(run for run in again.runs if run["draw"]["number"] == number) for number in range(2))
    was_fast = first["run"].get("train", {}).get("recipe") == "fast"
    assert first["draw"] == {"seed": draw, "number": 0, "among": repeated.ALL, "population": 6}
    assert second["run"]["train"]["recipe"] == "fast"
    among = {"among": repeated.BY_THE_FAST_RECIPE, "population": 1 if was_fast else 2}
    assert second["draw"] == {"seed": draw, "number": 1, **among}
    assert again.runs == repeated.drawn(experiments_with_rows(), 2, draw).runs


def test_every_row_may_be_drawn_first_and_without_a_fast_one_nothing_is_drawn():
    found = experiments_with_rows()
    runs = [repeated.drawn(found, 1, draw).runs[0] for draw in range(60)]
    rows = {(run["experiment"], run["run"]["number"]) for run in runs}
    assert rows == {(name, number) for name in ("doubling", "training") for number in range(3)}
    with pytest.raises(ValueError, match="rows by the fast recipe"):
        repeated.drawn(found[:1], 2)


def test_a_repeated_row_stands_beside_what_it_was_with_its_draw():
    doubling, _ = experiments_with_rows()
    draw = next(draw for draw in range(60) if repeated.drawn([doubling], 1, draw).runs[0]["run"]["number"] == 1)
    again = repeated.drawn([doubling], 1, draw)
    lines = [{**run, "results": {"auc": 0.501 + run["run"]["seed"] / 10}} for run in again.runs]
    row = repeated.section(lines, {"doubling": doubling}).splitlines()[-1]
    how = f"{draw}: 1 of 3 (all rows)"
    assert row == f"| doubling | number 1 | {how} | 55.00 ± 7.07 | 55.10 ± 7.07 | 0.1000 |"
    gone = Experiment("doubling", [], double)
    assert repeated.section(lines, {"doubling": gone}) == repeated.section([], {}) == NOT_RUN

"""Who waits for a fit is told how far it is, and how long it will take: a Python program, a bar, a log."""

import io

import pytest
from rich.console import Console

import tableless
from tableless.cli import output
from tableless.cli.output import ProgressBar
from tableless.embedding import FitProgress, distillation, fit_progress
from tableless.recommender.progress import Listener, fit_in_words

WORLD = "world:users=90,items=40,actions=1500,clusters=4"
SHORT = tableless.TrainConfig(epochs=1)


@pytest.fixture
def few_visits(monkeypatch):
    monkeypatch.setattr(distillation, "_MOST_VISITS", 8)
    monkeypatch.setattr(distillation, "_FEWEST_VISITS", 8)


@pytest.mark.parametrize(("budget", "doings"), [("1/4 parameters", ["fitting"]), ("1/4", ["fitting", "rounding"])])
def test_a_program_is_told_of_every_step_of_both_sides_with_the_time_left(few_visits, budget, doings):
    events = []
    tableless.train(WORLD, scheme="dhe", budget=budget, config=SHORT, progress=events.append)
    steps = [event for event in events if event.stage == "fit"]
    for doing in doings:
        for side in ("users", "items"):
            own = [step for step in steps if step.message.startswith(f"{doing} {side}: step ")]
            assert [step.done for step in own] == list(range(1, own[0].total + 1))
            assert all(step.seconds_left >= 0 and step.loss >= 0 for step in own)
            assert own[2].seconds_left > 0
            assert own[-1].seconds_left == 0
    assert {step.message.split()[0] for step in steps} == set(doings)
    stages = [event.stage for event in events]
    assert stages.index("epoch") < stages.index("fit") < len(stages) - 1 - stages[::-1].index("epoch")


def test_rows_that_are_rounded_by_turns_are_told_of_as_well():
    events = []
    tableless.train(WORLD, scheme="coded", budget="16B/id", config=SHORT, progress=events.append)
    stages = [(event.stage, event.message) for event in events]
    begin = next(place for place, (_, message) in enumerate(stages) if message.startswith("fitting by turns"))
    end = next(place for place, (_, message) in enumerate(stages) if " rounded again: " in message)
    assert {stage for stage, _ in stages[begin + 1 : end]} == {"batch"}


def test_what_a_long_fit_has_to_say_is_a_remark(few_visits, monkeypatch):
    monkeypatch.setattr(fit_progress, "_LONG", 0)
    events = []
    tableless.train(WORLD, scheme="dhe", budget="1/4", config=SHORT, progress=events.append)
    notes = [event.message for event in events if event.stage == "note"]
    assert sum(note.startswith("fitting 90 rows will take about ") for note in notes) == 1
    assert sum(note.startswith("fitting 40 rows will take about ") for note in notes) == 1


def test_the_words_of_a_step():
    step = FitProgress(1200, 33000, 0.2345, 150.0)
    assert fit_in_words("fitting items", step) == ("fitting items: step 1,200 of 33,000, 23.4% unexplained, 2 min left")
    told = []
    Listener(told.append).on_fit("fitting items", FitProgress(1, 2, 0.5, 3.0, "it will take long"))
    assert [event.stage for event in told] == ["note", "fit"]


def a_bar(*, is_terminal):
    progress, written = ProgressBar(), io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=120)
    progress._console = progress._bar.live.console = console
    return progress, written


def test_the_bar_shows_the_fit_and_its_time_left():
    progress, written = a_bar(is_terminal=True)
    with progress:
        progress.on_batch(3, 5, 5, 0.4)
        for done in range(1, 40):
            progress.on_fit("fitting users", FitProgress(done, 50, 0.25, 7.0))
        progress._bar.refresh()
        (task,) = progress._bar.tasks
        assert (task.description, task.completed, task.total) == ("fitting users", 39, 50)
        assert task.time_remaining is not None
    last = written.getvalue()
    assert "fitting users" in last
    assert "39/50" in last
    assert "25.0% unexplained" in last
    assert "0:00:0" in last


def test_where_no_bar_can_be_drawn_lines_are_left_from_time_to_time(monkeypatch):
    clock = iter(range(0, 1000, 7))
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    progress, written = a_bar(is_terminal=False)
    for done in range(1, 14):
        message = "it will take long" if done == 2 else ""
        progress.on_fit("fitting users", FitProgress(done, 13, 0.25, 7.0 * (13 - done), message))
    lines = written.getvalue().splitlines()
    assert lines[0] == "it will take long"
    assert [line.split(",")[0] for line in lines[1:]] == [f"fitting users: step {done} of 13" for done in (6, 11)]
    assert lines[-1].endswith("14 s left")


def test_the_command_tells_the_bar_of_the_fit(few_visits, monkeypatch):
    from typer.testing import CliRunner

    from tableless import cli

    told = []
    monkeypatch.setattr(ProgressBar, "on_fit", lambda self, doing, step: told.append(doing))
    assert (
        CliRunner().invoke(cli.app, ["train", WORLD, "--scheme", "dhe", "--budget", "1/4", "--epochs", "1"]).exit_code
        == 0
    )
    assert {"fitting users", "fitting items"} <= set(told)

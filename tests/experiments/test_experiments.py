"""The experiments themselves: what they ask for, that they can be stopped and resumed, that each kind of run works."""

import json

import numpy as np
import pytest
import torch
from experiments import (
    experts,
    features,
    figure2,
    figure3,
    new_ids,
    online,
    repeated,
    report,
    running,
    table1,
    table2,
    table3,
    table7,
    teacher,
    training_runs,
    writing,
)
from experiments.__main__ import EXPERIMENTS
from experiments.claims import Claim
from experiments.finished import INFEASIBLE, NOT_RUN, Difference, Finished
from experiments.recommendation import recommendation
from experiments.running import Experiment, first_seeds_first, key, run_all

from tableless.recommender.lines import append_line
from tableless.recommender.runs import DataConfig

WORLD = "world:users=100,items=60,actions=2000,clusters=4"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Teachers, results and pictures of tests stay out of the project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(writing, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr("experiments.figure2.PICTURES", tmp_path / "pictures")
    monkeypatch.setattr("tableless.embedding.distillation._MOST_VISITS", 20)  # fits need not be good here


def in_the_world(settings, **data):
    """The same run on small data, for an epoch."""
    return settings | {
        "data": DataConfig(WORLD, **data).settings(),
        "train": settings["train"] | {"epochs": 1, "batch_size": 256},
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_runs_are_plain_values_and_no_run_is_asked_for_twice(name):
    runs = EXPERIMENTS[name].runs
    assert len({key(run) for run in runs}) == len(runs) > 0
    assert json.loads(json.dumps(runs)) == list(runs)


def test_the_report_has_a_section_for_each_experiment():
    assert {module.EXPERIMENT.name for module in report.SECTIONS.values()} == set(EXPERIMENTS)


@pytest.mark.parametrize("module", report.SECTIONS.values(), ids=lambda module: module.EXPERIMENT.name)
def test_claims_compare_runs_that_are_asked_for(module):
    asked = {key(run) for run in module.EXPERIMENT.runs}
    for claim in getattr(module, "CLAIMS", []):
        pairs = list(zip(claim.runs, claim.rivals, strict=False))
        assert pairs, claim.says
        assert all(seed_of(run) == seed_of(rival) for run, rival in pairs), claim.says
        assert {key(run) for run in (*claim.runs, *claim.rivals)} <= asked, claim.says


def seed_of(run):
    return run["train"]["seed"] if "train" in run else run["seed"]


def double(settings):
    if settings["number"] > 2:
        raise ValueError("too large")
    return {"auc": 2.0 * settings["number"]}


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


def test_rows_are_drawn_among_those_with_a_spread_and_shown_beside_what_they_were():
    runs = [{"number": number, "seed": seed} for number in range(3) for seed in range(2)]
    doubling = Experiment("doubling", runs, double)
    for run in runs[:5]:
        append_line(doubling.path, {**run, "results": {"auc": 0.5 + run["seed"] / 10}})
    again = repeated.drawn([doubling], 2, draw=0)
    assert sorted(run["run"]["number"] for run in again.runs) == [0, 0, 1, 1]  # 2 has one seed: there is no spread
    assert again.runs == repeated.drawn([doubling], 2, draw=0).runs
    lines = [{**run, "results": {"auc": 0.501 + run["run"]["seed"] / 10}} for run in again.runs[:2]]
    row = repeated.section(lines, {"doubling": doubling}).splitlines()[-1]
    number = again.runs[0]["run"]["number"]
    assert row == f"| doubling | number {number} | 55.00 ± 7.07 | 55.10 ± 7.07 | 0.1000 |"
    gone = Experiment("doubling", [], double)
    assert repeated.section(lines, {"doubling": gone}) == repeated.section([], {}) == NOT_RUN


def lines_of(values):
    """A line for each run: a number is its AUC, a word the error."""
    return [
        {"run": number, **({"error": value} if isinstance(value, str) else {"results": {"auc": value}})}
        for number, value in enumerate(values)
    ]


def test_a_cell_tells_mean_spread_and_what_is_missing():
    finished = Finished(lines_of([0.5, 0.6, "too small"]))
    assert finished.cell([{"run": 0}, {"run": 1}]) == "55.00 ± 7.07"
    assert finished.cell([{"run": 0}, {"run": 7}]) == "50.00 (1 of 2 seeds)"
    assert finished.cell([{"run": 2}]) == INFEASIBLE
    assert finished.cell([{"run": 7}]) == NOT_RUN


def test_the_interval_of_paired_differences_is_that_of_student():
    # Differences 1, 2, 3: mean 2, standard deviation 1, and t = 4.303 for two degrees of freedom.
    difference = Difference.of([0.01, 0.02, 0.03])
    assert difference.mean == pytest.approx(0.02)
    assert difference.half_width == pytest.approx(0.04303 / np.sqrt(3))
    assert not difference.is_clear
    assert Difference.of([0.01]).half_width is None


@pytest.mark.parametrize(
    ("own", "rival", "similar", "verdict"),
    [
        ([0.91, 0.92, 0.93], [0.81, 0.82, 0.83], False, "reproduced"),
        ([0.81, 0.82, 0.83], [0.91, 0.92, 0.93], False, "the opposite"),
        ([0.81, 0.95, 0.70], [0.83, 0.80, 0.82], False, "no clear difference"),
        ([0.8995, 0.8996, 0.8994], [0.9, 0.9, 0.9], True, "reproduced"),
        ([0.85, 0.8501, 0.8499], [0.9, 0.9, 0.9], True, "not reproduced"),
        ([0.91], [0.81], False, "one seed only"),
        ([], [], False, NOT_RUN),
    ],
)
def test_a_verdict_needs_an_interval_that_leaves_out_zero(own, rival, similar, verdict):
    lines = lines_of([*own, *rival])
    runs, rivals = (
        [{"run": number} for number in range(len(own))],
        [{"run": len(own) + number} for number in range(len(rival))],
    )
    assert Claim("x", runs, rivals, similar=similar).verdict(Finished(lines)) == verdict


@pytest.mark.parametrize(("dhe", "is_level"), [([0.9], True), ([0.89], False), ([0.9, 0.9, 0.9], True)])
def test_a_rival_with_one_seed_is_not_ahead_by_less_than_what_counts_as_similar(dhe, is_level):
    runs = list(zip(figure2.runs_of("Globo, GMF", "dhe", "1/4"), dhe, strict=False))
    runs.append((figure2.runs_of("Globo, GMF", "compositional", "1/4")[0], 0.901))
    finished = Finished([run | {"results": {"auc": auc}} for run, auc in runs])
    (row,) = [row for row in recommendation(finished).splitlines() if row.startswith("| Globo, GMF | 1/4")]
    assert ("compositional 90.10; not clearly below: dhe |" in row) == is_level
    assert "compositional 90.10" in row


def test_the_report_shows_what_lines_say_and_that_nothing_else_was_run():
    lines = {title: [] for title in report.SECTIONS}
    title = "Table 3 (RQ2): encodings for DHE"
    for number, run in enumerate(table3.EXPERIMENT.runs):
        lines[title].append(run | {"results": {"auc": 0.5 + number / 100}, "seconds": 36.0})
    text = report.render(lines)
    assert all(f"## {title}" in text for title in report.SECTIONS)
    assert "| identity | 51.00 ± 1.00 | 94.99 |" in text
    assert "| 15 of 15 | 0.15 | 0.05 |" in text  # three seeds of each, the first a third of the time
    assert "uniform dense hashing is above identity | +2.67 | +12.00 ± 0.00 (3 pairs) | reproduced |" in text
    claims = sum(len(getattr(module, "CLAIMS", [])) for module in report.SECTIONS.values())
    assert f"reproduced: {len(table3.CLAIMS)}, {NOT_RUN}: {claims - len(table3.CLAIMS)}." in text


def test_the_summary_names_the_claims_that_failed():
    lines = {title: [] for title in report.SECTIONS}
    title = "Table 3 (RQ2): encodings for DHE"
    for number, run in enumerate(table3.EXPERIMENT.runs):
        lines[title].append(run | {"results": {"auc": 0.9 - number / 100}, "seconds": 36.0})
    assert "\n- the opposite: uniform dense hashing is above identity, -12.00 ± 0.00 (3 pairs); " in report.render(
        lines
    )


def test_encodings_that_know_only_numbered_ids_can_be_trained():
    settings = next(run for run in table3.EXPERIMENT.runs if run["model"]["options"] == {"encoding": "identity"})
    assert 0 < table3.perform(in_the_world(settings))["auc"] < 1


def test_the_table_learned_from_is_trained_once():
    settings = in_the_world(training_runs.settings(training_runs.MOVIELENS, "dhe", "1/4", 0))
    first, second = training_runs.perform(settings), training_runs.perform(settings)
    assert first["auc"] == second["auc"]
    assert first["teacher_seconds"] == second["teacher_seconds"]  # that of the one training


def test_genres_alone_give_like_films_the_same_score():
    settings = next(run for run in table7.EXPERIMENT.runs if run["encoding"] == table7.GENRES and run["genres_in_mlp"])
    settings = in_the_world(settings)
    assert 0 < table7.perform(settings)["auc"] < 1
    split = training_runs.split_of(DataConfig(WORLD))
    model = table7._model(training_runs.ModelConfig(**settings["model"]), split, table7.GENRES, WORLD, 0)
    ids = torch.tensor([3, 13, 4])  # genres follow from the last digit in the world
    vectors = model.items(ids)
    torch.testing.assert_close(vectors[0], vectors[1])  # some CPUs round by the place in a batch
    assert not torch.allclose(vectors[0], vectors[2])


@pytest.mark.parametrize("way", [new_ids.POPULARITY, new_ids.SHARED_ROW, new_ids.WITH_GENRES])
def test_new_ids_are_answered(way):
    settings = next(run for run in new_ids.EXPERIMENT.runs if run["way"] == way)
    results = new_ids.perform(in_the_world(settings, split="global-time"))
    assert 0 < results["auc"] < 1


@pytest.mark.parametrize("way", [teacher.FITTED, teacher.PUBLISHED])
def test_ways_of_training_report_what_they_took(way):
    settings = next(run for run in teacher.EXPERIMENT.runs if run["way"] == way)
    settings = settings | {"model": settings["model"] | {"budget": "8/1"}}  # the published network has 1024 inputs
    results = teacher.perform(in_the_world(settings))
    assert results["train_seconds"] > 0
    assert 0 < results["auc"] < 1


@pytest.mark.parametrize("scheme", online.WAYS)
def test_a_stream_is_measured_window_by_window(scheme):
    settings = {"data": WORLD, "batch_size": 64, "windows": 4, "scheme": scheme, "seed": 0}
    results = online.perform(settings)
    assert len(results["auc_by_window"]) == 4
    # Windows are whole batches: three of 512 actions, and what is left of 2000.
    weighted = np.average(results["auc_by_window"], weights=[512, 512, 512, 464])
    assert results["auc"] == pytest.approx(weighted)


@pytest.mark.parametrize("kind", features.KINDS)
def test_further_features_enter_every_kind_of_embedding(kind, monkeypatch):
    monkeypatch.setattr(features, "_FEW", 12)  # so that the world's users and items count as many
    monkeypatch.setattr(features, "BUDGET", 2)  # an eighth of so little is nothing
    settings = {"data": WORLD, "kind": kind, "epochs": 1, "seed": 0}
    alone = features.perform(settings | {"further_features": False})
    more = features.perform(settings | {"further_features": True})
    assert set(more["vocabularies"]) == {"user", "device", "item", "author"}
    assert more["auc"] != alone["auc"]
    assert 0 < more["auc"] < 1


def test_experts_share_out_the_arithmetic():
    settings = in_the_world(experts.EXPERIMENT.runs[0])
    settings["model"] |= {"budget": "2/1", "options": {"num_experts": 2}}
    results = experts.perform(settings)
    assert results["user_experts"] == 2
    # Beside the matrices a network has but biases: half of the parameters, less those.
    assert 0.9 * results["embedding_parameters"] / 2 < results["user_products"] + results["item_products"]
    assert results["user_products"] + results["item_products"] < results["embedding_parameters"] / 2


def test_schemes_are_asked_about_new_ids_and_collisions():
    sizes = {"budget": "1/4", "vocab_size": 1000, "larger_vocab_size": 2000}
    full = table1.perform({"scheme": "full", **sizes})
    trick = table1.perform({"scheme": "hashing-trick", **sizes})
    dhe = table1.perform({"scheme": "dhe", **sizes})
    assert (full["answers_new_ids"], trick["answers_new_ids"], dhe["answers_new_ids"]) == (False, True, True)
    assert full["parameters_for_larger_vocabulary"] == 2 * full["num_parameters"]
    assert dhe["parameters_for_larger_vocabulary"] == dhe["num_parameters"]
    assert trick["ids_sharing_a_vector"] > 0.9
    assert dhe["ids_sharing_a_vector"] == full["ids_sharing_a_vector"] == 0


def test_encodings_have_the_properties_that_the_paper_gives_them():
    results = table2.perform({"num_ids": 2000, "num_hashes": 256, "seed": 0})
    assert {name: table2._verdicts(report) for name, report in results.items()} == table2.PAPER


def test_pictures_are_drawn_from_lines():
    curves = {run["scheme"]: [0.5] * online.WINDOWS for run in online.EXPERIMENT.runs}
    lines = [run | {"results": {"auc": 0.6, "auc_by_window": curves[run["scheme"]]}} for run in online.EXPERIMENT.runs]
    assert "](pictures/online.png)" in online.section(lines)
    lines = [run | {"results": {"auc": 0.6, "item_products": 1000}} for run in experts.EXPERIMENT.runs]
    assert "](pictures/experts.png)" in experts.section(lines)
    lines = [run | {"results": {"auc": 0.6}} for run in figure3.EXPERIMENT.runs]
    assert "](pictures/figure3.png)" in figure3.section(lines)
    assert sorted(path.name for path in writing.PICTURES.iterdir()) == ["experts.png", "figure3.png", "online.png"]

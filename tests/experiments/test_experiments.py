"""The experiments themselves: what they ask for, that they can be stopped and resumed, that each kind of run works."""

import json
import subprocess
from dataclasses import asdict

import numpy as np
import pytest
import torch
from experiments import (
    choices,
    circumstances,
    experts,
    feature_models,
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
    table4,
    table7,
    teacher,
    training_runs,
    writing,
)
from experiments.__main__ import EXPERIMENTS
from experiments.claims import AS_PUBLISHED, CAPPED, OURS, Claim
from experiments.finished import INFEASIBLE, NOT_RUN, Difference, Finished, is_capped
from experiments.recommendation import recommendation
from experiments.running import Experiment, first_seeds_first, key, run_all

from tableless.recommender import recipes
from tableless.recommender.lines import append_line
from tableless.recommender.runs import DataConfig

WORLD = "world:users=100,items=60,actions=2000,clusters=4"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Teachers, results and pictures of tests stay out of the project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(writing, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr("tableless.embedding.distillation._MOST_VISITS", 20)  # fits need not be good here


def in_the_world(settings, **data):
    """The same run on small data, for an epoch."""
    return settings | {
        "data": asdict(DataConfig(WORLD, **data)),
        "train": settings["train"] | {"epochs": 1, "batch_size": 256},
    }


def runs_of_a_model(count, scheme="dhe", *, recipe="paper", backbone="gmf"):
    """Settings as an experiment has them, one for each seed."""
    return [
        training_runs.settings(training_runs.MOVIELENS, scheme, "1/4", seed, recipe=recipe, backbone=backbone)
        for seed in range(count)
    ]


def lines_with(runs, aucs, **results):
    """A finished line for each run."""
    return [
        run | {"results": {"auc": auc, "ndcg@10": auc / 10, **results}} for run, auc in zip(runs, aucs, strict=True)
    ]


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
    assert difference.half_width == pytest.approx(0.04303 / np.sqrt(3), rel=1e-3)
    assert not difference.is_clear
    assert Difference.of([0.01]).half_width is None


def test_the_interval_of_many_pairs_is_that_of_student_too():
    # Eleven differences: t = 2.228 for ten degrees of freedom, where the normal distribution has 1.96.
    differences = [number / 100 for number in range(11)]
    spread = np.std(differences, ddof=1) / np.sqrt(11)
    assert Difference.of(differences).half_width == pytest.approx(2.228 * spread, rel=1e-3)


VERDICTS = [
    ([0.91, 0.92, 0.93], [0.81, 0.82, 0.83], False, "reproduced", "agrees"),
    ([0.81, 0.82, 0.83], [0.91, 0.92, 0.93], False, "the opposite", "the opposite"),
    ([0.81, 0.95, 0.70], [0.83, 0.80, 0.82], False, "no clear difference", "no clear difference"),
    ([0.8995, 0.8996, 0.8994], [0.9, 0.9, 0.9], True, "reproduced", "agrees"),
    ([0.85, 0.8501, 0.8499], [0.9, 0.9, 0.9], True, "not reproduced", "does not agree"),
    ([0.91], [0.81], False, "one seed only", "one seed only"),
]


@pytest.mark.parametrize(("own", "rival", "similar", "verdict", "by_ours"), VERDICTS)
def test_a_verdict_needs_an_interval_that_leaves_out_zero_and_the_method_of_the_paper(
    own, rival, similar, verdict, by_ours
):
    for recipe, method, expected in (("paper", AS_PUBLISHED, verdict), ("fast", OURS, by_ours)):
        runs = runs_of_a_model(len(own), recipe=recipe)
        rivals = runs_of_a_model(len(rival), "bloom", recipe=recipe)
        claim = Claim("x", runs, rivals, similar=similar)
        assert claim.method == method
        assert claim.verdict(Finished([])) == NOT_RUN
        assert claim.verdict(Finished(lines_with(runs, own) + lines_with(rivals, rival))) == expected


@pytest.mark.parametrize("capped_side", [0, 1])
def test_no_verdict_is_drawn_from_a_run_that_stopped_at_the_limit(capped_side):
    sides = [runs_of_a_model(3), runs_of_a_model(3, "bloom")]
    lines = [lines_with(runs, aucs) for runs, aucs in zip(sides, ([0.9, 0.91, 0.92], [0.8, 0.81, 0.82]), strict=True)]
    assert Claim("x", *sides).verdict(Finished(lines[0] + lines[1])) == "reproduced"
    lines[capped_side][2]["results"]["capped"] = True
    finished = Finished(lines[0] + lines[1])
    assert Claim("x", *sides).verdict(finished) == CAPPED
    assert finished.cell(sides[0]) == ("91.00† ± 1.00" if capped_side == 0 else "91.00 ± 1.00")
    assert "†" not in finished.plain(sides[0], "auc")


def test_lines_from_before_say_by_their_epochs_that_they_were_capped():
    def line(epochs, limit, recipe, scheme):
        (run,) = runs_of_a_model(1, scheme, recipe=recipe)
        return run | {"train": run["train"] | {"epochs": limit}, "results": {"auc": 0.5, "epochs": epochs}}

    assert is_capped(line(50, 50, "paper", "dhe"))
    assert is_capped(line(50, 50, "fast", "compositional"))
    assert not is_capped(line(49, 50, "fast", "compositional"))
    assert not is_capped(line(10, 10, "fast", "dhe")), "it ended by tuning, which has a fixed length"
    assert is_capped({"kind": "one joint network", "epochs": 8, "results": {"epochs": 8}})
    assert not is_capped({"kind": "one joint network", "epochs": 8, "error": "too small"})


def test_a_claim_refuses_to_compare_unlike_things():
    dhe = runs_of_a_model(2)
    with pytest.raises(ValueError, match="recipe"):
        Claim("x", dhe, runs_of_a_model(2, "bloom", recipe="fast"))
    with pytest.raises(ValueError, match="backbone"):
        Claim("x", dhe, runs_of_a_model(2, "bloom", backbone="mlp"))
    with pytest.raises(ValueError, match="is of mlp, the runs are of gmf"):
        Claim("x", dhe, runs_of_a_model(2, "bloom"), paper=0.5, paper_backbone="mlp")
    assert Claim("x", dhe, runs_of_a_model(2, "bloom"), paper=0.5).where == "ML-1M, GMF"


def test_table_4_is_of_the_backbone_that_the_paper_has():
    assert {run["model"]["backbone"] for run in table4.EXPERIMENT.runs} == {"mlp"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_everything_in_an_experiment_has_one_rule_for_stopping(name):
    trainings = [run.get("train", run) for run in EXPERIMENTS[name].runs]
    rules = {(each["epochs"], each["patience"]) for each in trainings if "patience" in each}
    assert len(rules) <= 1


@pytest.mark.parametrize("recipe", ["paper", "fast"])
def test_whoever_stands_in_a_panel_of_figure_2_has_its_recipe(recipe):
    everybody = figure2.runs_of("ML-1M, GMF", "full", "1/1", recipe)
    everybody += [run for each in figure2.COMPRESSED for run in figure2.runs_of("ML-1M, GMF", each, "1/4", recipe)]
    assert len(everybody) == 3 * (1 + len(figure2.COMPRESSED))
    assert {run["train"]["recipe"] for run in everybody} == {recipe}
    assert {run["train"]["weight_decay"] for run in everybody} == {0.0}, "decay is part of the recipe, not of a run"


@pytest.mark.parametrize(("dhe", "is_level"), [([0.9], True), ([0.89], False), ([0.9, 0.9, 0.9], True)])
def test_a_rival_with_one_seed_is_not_ahead_by_less_than_what_counts_as_similar(dhe, is_level):
    runs = list(zip(figure2.runs_of("Globo, GMF", "dhe", "1/4", "fast"), dhe, strict=False))
    runs.append((figure2.runs_of("Globo, GMF", "compositional", "1/4", "fast")[0], 0.901))
    finished = Finished([run | {"results": {"auc": auc}} for run, auc in runs])
    (row,) = [row for row in recommendation(finished).splitlines() if row.startswith("| Globo, GMF | 1/4")]
    assert ("compositional 90.10 (1 of 3 seeds); not clearly below: dhe |" in row) == is_level
    assert "compositional 90.10" in row


def test_who_stopped_at_the_limit_is_named_and_not_ranked():
    runs = figure2.runs_of("Globo, GMF", "dhe", "1/4", "fast")
    ahead = figure2.runs_of("Globo, GMF", "compositional", "1/4", "fast")
    lines = lines_with(runs, [0.9, 0.9, 0.9]) + lines_with(ahead, [0.95, 0.95, 0.95], capped=True)
    (row,) = [row for row in recommendation(Finished(lines)).splitlines() if row.startswith("| Globo, GMF | 1/4")]
    assert "| dhe 90.00 ± 0.00; stopped at the limit: compositional |" in row


TABLE_3 = "Table 3 (RQ2): encodings for DHE"


def test_the_report_shows_what_lines_say_and_that_nothing_else_was_run():
    lines = {title: [] for title in report.SECTIONS}
    published = [run for run in table3.EXPERIMENT.runs if run["train"]["recipe"] == "paper"]
    for number, run in enumerate(published):
        results = {"auc": 0.5 + number / 100, "ndcg@10": 0.05, "evaluated": 6000, "held_out": 6040, "auc_se": 0.0012}
        lines[TABLE_3].append(run | {"results": results, "seconds": 36.0})
    text = report.render(lines)
    assert all(f"## {title}" in text for title in report.SECTIONS)
    assert "| identity | 51.00 ± 1.00 | 5.00 ± 0.00 | not run yet | not run yet | 94.99 |" in text
    assert (
        "Held-out actions measured: 6,000 of 6,040; standard error of an AUC over users: at most 0.12 points." in text
    )
    assert "| 15 of 30 | 0.15 | 0.05 |" in text  # three seeds of each, the first a third of the time
    published_table, _, ours = text.partition("## The same comparisons by our recipe")
    above = "| uniform dense hashing is above identity | ML-1M, GMF | +2.67 |"
    assert f"{above} +12.00 ± 0.00 (3 pairs) | +0.00 ± 0.00 (3 pairs) | reproduced |" in published_table
    assert f"{above} not run yet | not run yet | not run yet |" in ours
    claims = [claim for module in report.SECTIONS.values() for claim in getattr(module, "CLAIMS", [])]
    left = sum(claim.method == AS_PUBLISHED for claim in claims) - 4
    assert f"reproduced: 4, {NOT_RUN}: {left}." in published_table


def test_the_summary_names_the_claims_that_failed():
    lines = {title: [] for title in report.SECTIONS}
    lines[TABLE_3] = lines_with(table3.EXPERIMENT.runs, [0.9 - number / 100 for number in range(30)])
    text = report.render(lines)
    assert "\n- the opposite: uniform dense hashing is above identity (ML-1M, GMF), -12.00 ± 0.00 (3 pairs); " in text


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


@pytest.mark.parametrize("choice", choices.CHOICES.values(), ids=lambda choice: choice.name)
def test_the_value_in_use_is_among_those_that_are_tried(choice):
    assert choice.in_use() in choice.alternatives
    assert len(set(choice.alternatives)) == len(choice.alternatives) > 1


def test_a_run_of_a_choice_has_the_constant_that_it_names(monkeypatch):
    seen = {}

    def note(settings):
        seen[settings["choice"], str(settings["value"])] = recipes.TEACHER_DECAY, settings["model"]["options"]
        return {}

    monkeypatch.setattr(choices, "train_and_measure", note)
    by_name = {(run["choice"], str(run["value"])): run for run in choices.EXPERIMENT.runs}
    before = recipes.TEACHER_DECAY
    for name in (("weight decay of the table to learn from", "0.3"), ("number of hashes", "32")):
        choices.perform(by_name[name])
    assert seen["weight decay of the table to learn from", "0.3"] == (0.3, {})
    assert seen["number of hashes", "32"] == (before, {"num_hashes": 32})
    assert before == recipes.TEACHER_DECAY, "and afterwards it is as it was"


def test_encodings_that_know_only_numbered_ids_can_be_trained():
    settings = next(run for run in table3.EXPERIMENT.runs if run["model"]["options"] == {"encoding": "identity"})
    assert 0 < table3.perform(in_the_world(settings))["auc"] < 1


def test_the_table_learned_from_is_trained_once():
    settings = in_the_world(training_runs.settings(training_runs.MOVIELENS, "dhe", "1/4", 0, recipe="fast"))
    first, second = training_runs.perform(settings), training_runs.perform(settings)
    assert first["auc"] == second["auc"]
    assert first["teacher_seconds"] == second["teacher_seconds"]  # that of the one training
    (table,) = [stage for stage in first["stages"] if stage["stage"] == "table (GMF)"]
    assert table in second["stages"]
    assert first["capped"], "after one epoch the table might still have risen"
    assert (table["epochs"], table["capped"], table["settings"]["weight_decay"]) == (1, True, recipes.TEACHER_DECAY)


def test_genres_alone_give_like_films_the_same_score():
    settings = next(run for run in table7.EXPERIMENT.runs if run["encoding"] == table7.GENRES and run["genres_in_mlp"])
    settings = in_the_world(settings) | {"model": settings["model"] | {"budget": "8/1"}}  # 1024 inputs of users
    assert 0 < table7.perform(settings)["auc"] < 1
    split = training_runs.split_of(DataConfig(WORLD))
    model = table7._model(training_runs.ModelConfig(**settings["model"]), split, table7.GENRES, WORLD, 0)
    ids = torch.tensor([3, 13, 4])  # genres follow from the last digit in the world
    vectors = model.items.eval()(ids)
    torch.testing.assert_close(vectors[0], vectors[1])  # some CPUs round by the place in a batch
    assert not torch.allclose(vectors[0], vectors[2])


@pytest.mark.parametrize("way", [new_ids.SHARED_ROW, new_ids.WITH_GENRES])
def test_new_ids_are_answered(way):
    settings = next(run for run in new_ids.EXPERIMENT.runs if run["way"] == way)
    results = new_ids.perform(in_the_world(settings, split="global-time"))
    assert 0 < results["auc"] < 1


def test_ways_of_training_differ_by_recipe_and_network_alone():
    by_way = {way: teacher._runs(way)[0] for way in teacher.WAYS}
    assert [run["train"]["recipe"] for run in by_way.values()] == ["fast", "paper", "paper"]
    assert by_way[teacher.OURS_END_TO_END]["model"]["options"]["num_hashes"] == 64
    assert by_way[teacher.PUBLISHED]["model"]["options"]["num_hashes"] == 1024
    settings = by_way[teacher.PUBLISHED]
    settings = settings | {"model": settings["model"] | {"budget": "8/1"}}  # the published network has 1024 inputs
    results = training_runs.perform(in_the_world(settings))
    assert results["seconds"] > 0
    assert 0 < results["auc"] < 1


@pytest.mark.parametrize("scheme", online.WAYS)
def test_a_stream_is_measured_window_by_window(scheme):
    settings = {"data": WORLD, "batch_size": 64, "windows": 4, "scheme": scheme, "seed": 0}
    results = online.perform(settings)
    assert len(results["auc_by_window"]) == 4
    # Windows are whole batches: three of 512 actions, and what is left of 2000.
    weighted = np.average(results["auc_by_window"], weights=[512, 512, 512, 464])
    assert results["auc"] == pytest.approx(weighted)


@pytest.mark.parametrize("recipe", ["paper", "fast"])
@pytest.mark.parametrize("kind", features.KINDS)
def test_further_features_enter_every_kind_of_embedding_by_every_recipe(kind, recipe, monkeypatch):
    monkeypatch.setattr(feature_models, "_FEW", 12)  # so that the world's users and items count as many
    monkeypatch.setattr(features, "FINE_TUNING_EPOCHS", 2)
    share = 1 if kind == "full" else 2  # an eighth of so little is nothing
    settings = {"data": WORLD, "kind": kind, "recipe": recipe, "budget_share": share, "weight_decay": 0.2}
    settings |= {"epochs": 2, "patience": 2, "seed": 0}
    alone = features.perform(settings | {"further_features": False})
    more = features.perform(settings | {"further_features": True})
    assert set(more["vocabularies"]) == {"user", "device", "item", "author"}
    assert more["auc"] != alone["auc"]
    assert 0 < more["auc"] < 1
    expected = ["from nothing"] if recipe == "paper" else ["tables", "fit", "tuning"]
    assert [stage["stage"] for stage in more["stages"]] == (
        ["tables"] if (recipe, kind) == ("fast", "full") else expected
    )
    assert more["capped"], "two epochs with a patience of two end at the limit"


def test_one_network_is_fitted_to_the_tables_of_all_features_at_once(monkeypatch):
    monkeypatch.setattr("tableless.embedding.distillation._MOST_VISITS", 400)
    sizes = {"user": 60, "author": 30}
    tables = feature_models.click_model("full", 1, sizes, seed=0)
    for scheme in tables.embeddings.tables.values():
        torch.nn.init.normal_(scheme.table)
    joint = feature_models.click_model(
        "one joint network", 1, {name: 20 * size for name, size in sizes.items()}, seed=0
    )
    (left,) = joint.fit_to(tables, sizes, seed=0)
    assert left < 0.2
    ids = {"author": torch.tensor([3, 29]), "user": torch.tensor([59, 0, 7])}
    asked, known = joint.eval().embeddings(ids), tables.embeddings(ids)
    for name in sizes:
        cosine = torch.nn.functional.cosine_similarity(asked[name], known[name], dim=-1)
        assert cosine.min() > 0.8, "both features are remembered"


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
    lines = lines_with(experts.EXPERIMENT.runs, [0.6] * len(experts.EXPERIMENT.runs), item_products=1000)
    assert "](pictures/experts.png)" in experts.section(lines)
    lines = lines_with(figure3.EXPERIMENT.runs, [0.6] * len(figure3.EXPERIMENT.runs))
    assert "](pictures/figure3.png)" in figure3.section(lines)
    runs = figure2.runs_of("ML-1M, GMF", "dhe", "1/4", "fast")
    assert "](pictures/figure2-movielens-1m-gmf-fast.png)" in figure2.section(lines_with(runs, [0.6] * 3))
    drawn = ["experts.png", "figure2-movielens-1m-gmf-fast.png", "figure3.png", "online.png"]
    assert sorted(path.name for path in writing.PICTURES.iterdir()) == drawn


def test_a_marker_is_hollow_where_a_run_stopped_at_the_limit():
    runs, others = runs_of_a_model(1), runs_of_a_model(1, "bloom")
    finished = Finished(lines_with(runs, [0.6], capped=True) + lines_with(others, [0.7], capped=False))
    axes = writing.new_picture().subplots()
    writing.markers(axes, finished, [(0, runs), (1, others)], "auc", color="C1")
    _, hollow, solid = axes.get_lines()
    assert (hollow.get_markerfacecolor(), solid.get_markerfacecolor()) == ("white", "C1")

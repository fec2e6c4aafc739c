"""Verdicts: like is compared with like, an interval decides, and nothing that stopped at the limit counts."""

import numpy as np
import pytest
from experiments import (
    figure2,
    report,
    table4,
)
from experiments.claims import AS_PUBLISHED, CAPPED, OURS, Claim
from experiments.finished import INFEASIBLE, NOT_RUN, Difference, Finished, is_capped
from experiments.recommendation import recommendation
from experiments.running import key

from tests.experiments.fakes import lines_with, runs_of_a_model, seed_of


@pytest.mark.parametrize("module", report.SECTIONS.values(), ids=lambda module: module.EXPERIMENT.name)
def test_claims_compare_runs_that_are_asked_for(module):
    asked = {key(run) for run in module.EXPERIMENT.runs}
    for claim in getattr(module, "CLAIMS", []):
        pairs = list(zip(claim.runs, claim.rivals, strict=False))
        assert pairs, claim.says
        assert all(seed_of(run) == seed_of(rival) for run, rival in pairs), claim.says
        assert {key(run) for run in (*claim.runs, *claim.rivals)} <= asked, claim.says


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

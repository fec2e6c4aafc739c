import io
import json

import pytest

from tableless.data.config import DataConfig
from tableless.recommender import comparison
from tableless.recommender.comparison import Plan, run_comparison
from tableless.recommender.comparison_report import render_comparison, save_comparison_picture, summarise_runs
from tableless.recommender.evaluation import METRICS
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_split

DATA = DataConfig(data="world:users=200,items=120,actions=6000,clusters=4")
FAST = TrainConfig(epochs=1, batch_size=512)


NUM_IDS = 320  # users and items of the lines below


def line(scheme, budget, auc, backbone="gmf", seed=0, num_bytes=4000, capped=False):
    measured = {name: auc if name == "auc" else auc / 10 for name in METRICS} | {"auc_se": 0.002}
    sizes = {"evaluated": 6040, "held_out": 6040, "auc_items": None}
    results = measured | sizes | {
        "validation_auc": auc, "seconds": 3.0, "popularity_auc": 0.8, "unanswered": 0, "capped": capped,
        "popularity": {name: 0.8 if name == "auc" else 0.03 for name in METRICS}, 
        "bytes": num_bytes, "bytes_per_id": num_bytes / NUM_IDS, "embedding_parameters": num_bytes // 4,
    }  # fmt: skip
    model = {"scheme": scheme, "budget": budget, "backbone": backbone}
    return {"data": {}, "model": model, "train": {"seed": seed}, "results": results}


def test_each_run_adds_a_line_and_finished_ones_are_not_repeated(tmp_path, monkeypatch):
    out = tmp_path / "new" / "results.jsonl"
    plan = Plan(schemes=["full", "low-rank"], budgets=["1/2", "1/4"], backbones=["gmf"], seeds=2)
    lines = run_comparison(plan, DATA, FAST, small_split(), out=out)
    assert len(lines) == len(out.read_text().splitlines()) == 2 * (1 + 2)
    tables = {str(line["results"]["stages"][0]) for line in lines}
    assert len(tables) == 2, "the table to learn from is trained once for each seed"
    monkeypatch.setattr(comparison, "train_and_measure", None)  # would fail if anything were run again
    assert run_comparison(plan, DATA, FAST, small_split(), out=out) == lines


def test_a_line_cut_short_by_a_crash_is_done_again(tmp_path):
    out = tmp_path / "results.jsonl"
    plan = Plan(schemes=["full"], budgets=[], backbones=["gmf"], seeds=1)
    run_comparison(plan, DATA, FAST, small_split(), out=out)
    out.write_text(out.read_text()[:-20] + "\n")
    assert "results" in run_comparison(plan, DATA, FAST, small_split(), out=out)[0]


def test_a_budget_too_small_for_a_scheme_is_a_result_too(tmp_path):
    plan = Plan(schemes=["dhe", "full"], budgets=["1/64"], backbones=["gmf"], seeds=1)
    lines = run_comparison(plan, DATA, FAST, small_split(), out=tmp_path / "results.jsonl")
    assert "too small" in lines[0]["error"]
    rows = summarise_runs(lines)
    assert [row["auc"] is None for row in rows if row["scheme"] == "dhe"] == [True]
    assert render_comparison(rows).row_count == 2


def test_the_summary_has_mean_spread_and_the_share_of_the_gap_to_the_full_table():
    lines = [line("full", "1/1", 0.9), line("dhe", "1/4", 0.87), line("dhe", "1/4", 0.89, seed=1)]
    rows = {row["scheme"]: row for row in summarise_runs(lines)}
    assert rows["dhe"]["auc"] == pytest.approx(0.88)
    assert rows["dhe"]["auc_sd"] == pytest.approx(0.01414, abs=1e-5)
    assert rows["dhe"]["gap_closed"] == pytest.approx(0.8)
    assert rows["full"]["gap_closed"] == pytest.approx(1.0)


def test_rows_are_ranked_within_a_size():
    lines = [
        line("bloom", "1/4", 0.7, num_bytes=990),
        line("dhe", "1/4", 0.8, num_bytes=985),
        line("full", "1/1", 0.9, num_bytes=4000),
        line("dhe", "1/2", 0.85, num_bytes=1990),
    ]
    order = [(row["scheme"], row["budget"]) for row in summarise_runs(lines)]
    assert order == [("full", "1/1"), ("dhe", "1/2"), ("dhe", "1/4"), ("bloom", "1/4")]


def test_budgets_in_memory_are_sorted_by_what_they_come_to():
    """`1.5MB` is more than `64KB`, and both are less than a table of two million bytes; parameters have bytes too."""
    lines = [
        line("dhe", "64KB", 0.7, num_bytes=63_500),
        line("dhe", "1.5MB", 0.8, num_bytes=1_499_000),
        line("full", "1/1", 0.9, num_bytes=2_000_000),
        line("dhe", "100000", 0.75, num_bytes=400_900),
    ]
    rows = summarise_runs(lines)
    assert [row["budget"] for row in rows] == ["1/1", "1.5MB", "100000", "64KB"]
    assert [row["bytes"] for row in rows] == [2_000_000, 1_499_000, 400_900, 63_500]
    assert [row["bytes_per_id"] for row in rows] == [row["bytes"] / NUM_IDS for row in rows]


def test_the_picture_has_bytes_per_id_on_a_logarithmic_axis(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **more: (drawn.append(self), save(self, *args, **more)))
    lines = [
        line("dhe", "8B/id", 0.7, num_bytes=8 * NUM_IDS),
        line("dhe", "1/2", 0.8, num_bytes=64 * NUM_IDS),
        line("bloom", "8B/id", 0.6, num_bytes=7 * NUM_IDS),
        line("full", "1/1", 0.9, num_bytes=129 * NUM_IDS),
    ]
    save_comparison_picture(summarise_runs(lines), tmp_path / "picture.png")
    (figure,) = drawn
    assert "few bytes" in figure.get_suptitle()
    panels = figure.axes
    assert [panel.get_ylabel() for panel in panels] == ["test AUC", "test NDCG@10"]
    assert panels[1].get_xlabel().startswith("bytes per id")
    assert [text.get_text() for text in panels[1].get_xticklabels()] == ["8", "16", "32", "64"]
    for panel in panels:
        assert panel.get_xscale() == "log"
        assert panel.get_xticks().tolist() == [8, 16, 32, 64]
    colors = []
    for panel, scale in zip(panels, (1, 10), strict=True):
        points = {drawn.get_label(): drawn for drawn in panel.get_lines()}
        assert points["dhe"].get_xdata().tolist() == [8, 64]
        assert points["dhe"].get_ydata().tolist() == pytest.approx([0.7 / scale, 0.8 / scale])
        assert points["bloom"].get_xdata().tolist() == [7]
        assert "full table (129 bytes per id)" in points
        colors.append({name: own.get_color() for name, own in points.items()})
    assert colors[0]["dhe"] == colors[1]["dhe"] != colors[0]["bloom"] == colors[1]["bloom"]


def test_lines_from_before_budgets_were_bytes_are_run_again(tmp_path):
    out = tmp_path / "results.jsonl"
    plan = Plan(schemes=["full", "bloom"], budgets=["1/4", "10B"], backbones=["gmf"], seeds=1)
    lines = run_comparison(plan, DATA, FAST, small_split(), out=out)
    assert run_comparison(plan, DATA, FAST, small_split(), out=out) == lines
    assert len(out.read_text().splitlines()) == 3
    old = [json.loads(text) for text in out.read_text().splitlines()]
    for own in old:  # as 0.1.0 wrote them
        own.get("results", {}).pop("bytes", None)
        if "error" in own:
            del own["versions"]
    out.write_text("".join(json.dumps(own) + "\n" for own in old))
    again = run_comparison(plan, DATA, FAST, small_split(), out=out)
    assert len(out.read_text().splitlines()) == 6
    assert ["error" in own or own["results"]["bytes"] for own in again] == [
        "error" in own or own["results"]["bytes"] for own in lines
    ]


def test_a_run_that_ended_at_its_limit_is_marked_in_the_table():
    from rich.console import Console

    console = Console(width=80, file=io.StringIO())
    console.print(render_comparison(summarise_runs([line("dhe", "1/4", 0.8, capped=True), line("full", "1/1", 0.9)])))
    text = console.file.getvalue()
    assert "12.5" in text  # bytes per id
    assert ".8000†" in text
    assert ".9000†" not in text
    assert "6,040" in text
    assert ".0020" in text  # the standard error over users


def test_schemes_that_answer_for_new_ids_are_compared_on_the_ids_that_all_know():
    opened, closed = line("dhe", "1/4", 0.7), line("full", "1/1", 0.9)
    opened["results"]["known"] = {**opened["results"], "auc": 0.88, "evaluated": 5000}
    assert {row["scheme"]: row["auc"] for row in summarise_runs([opened, closed])} == {"dhe": 0.7, "full": 0.9}
    closed["results"] |= {"unanswered": 12, "evaluated": 5000, "popularity_auc": 0.82}
    rows = {row["scheme"]: row for row in summarise_runs([opened, closed])}
    assert (rows["dhe"]["auc"], rows["dhe"]["evaluated"], rows["dhe"]["popularity_auc"]) == (0.88, 5000, 0.82)


def test_the_table_fits_a_terminal_and_the_picture_is_a_png(tmp_path):
    from rich.console import Console

    lines = [line(scheme, size, 0.8 + 0.01 * n, backbone, seed) for n, scheme in enumerate(["dhe", "hash-embedding"])
             for size in ("1/2", "1/4") for backbone in ("gmf", "mlp") for seed in (0, 1)]  # fmt: skip
    rows = summarise_runs([*lines, line("full", "1/1", 0.9), line("full", "1/1", 0.91, "mlp")])
    console = Console(width=80, file=io.StringIO())
    console.print(render_comparison(rows))
    assert "…" not in console.file.getvalue()
    save_comparison_picture(rows, tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert json.dumps(rows)


def test_a_gap_below_nothing_is_no_minus_zero_and_what_is_not_above_popularity_is_named():
    from rich.console import Console

    console = Console(width=100, file=io.StringIO())
    lines = [line("full", "1/1", 0.9), line("bloom", "1/4", 0.7999), line("dhe", "1/4", 0.88)]
    console.print(render_comparison(summarise_runs(lines)))
    text = console.file.getvalue()
    assert "-0%" not in text
    assert " 0%" in text
    assert "Not clearly above popularity: bloom 1/4 (gmf)." in text
    assert "--batch-size" in text


@pytest.mark.parametrize(
    "wrong", [{"schemes": ["foo"]}, {"budgets": ["1/x"]}, {"backbones": ["foo"]}, {"seeds": 0}, {"budgets": ["0"]}]
)
def test_a_plan_with_a_mistake_is_refused_before_any_data(wrong):
    with pytest.raises(ValueError, match=r"foo|1/x|seeds|'0'"):
        Plan(**{"schemes": ["full"], **wrong})

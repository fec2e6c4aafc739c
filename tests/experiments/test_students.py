from experiments import students


def line(run, ndcg):
    return {**run, "results": {"auc": 0.9, "ndcg@10": ndcg, "recall@20": 2 * ndcg}}


def test_every_run_has_a_line_of_its_own_and_the_table_is_that_of_the_same_loss():
    runs = students.EXPERIMENT.runs
    assert len({str(run) for run in runs}) == len(runs) == 42
    full = students.runs_of(students.SIZES[0][0], "1/1", "softmax")
    assert {run["model"]["scheme"] for run in full} == {"full"}
    assert {run["train"]["loss"] for run in full} == {"softmax"}


def test_what_is_kept_is_taken_seed_by_seed():
    data = students.SIZES[0][0]
    table, student = (students.runs_of(data, budget, "bce") for budget in ("1/1", "1/4"))
    text = students.section(
        [
            line(table[0], 0.04),
            line(table[2], 0.05),
            line(student[0], 0.03),  # 75 % of its own table
            line(student[2], 0.045),  # 90 %
            line(student[1], 0.01),  # there is no table of this seed
        ]
    )
    row = next(row for row in text.splitlines() if row.startswith("| 1/4 | bce"))
    assert [cell.strip() for cell in row.split("|")][-3:-1] == ["82 %", "82 %"]
    assert "not run yet" in text

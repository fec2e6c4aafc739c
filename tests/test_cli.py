import json
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Literal

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import tableless
from tableless import cli
from tableless.cli import demo
from tableless.cli.app import as_typed
from tableless.cli.options import Only, options_from_dataclasses
from tableless.data.config import DataConfig
from tableless.recommender.runs import ModelConfig
from tableless.recommender.training import TrainConfig
from tableless.serving.settings import AnswerSettings, ServerSettings
from tests.conftest import few_visits
from tests.documents import ROOT

WORLD = "world:users=200,items=120,actions=6000,clusters=4"


def run(*arguments):
    return CliRunner().invoke(cli.app, list(arguments))


def test_inspect_prints_the_table_of_the_paper_and_saves_a_picture(tmp_path):
    picture = tmp_path / "new" / "encodings.png"
    result = run("inspect", "--num-ids", "500", "--num-hashes", "128", "--picture", str(picture))
    assert result.exit_code == 0
    assert "dense hash" in result.stdout
    assert "✓" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_inspect_for_machines_ends_in_one_json_object():
    result = run("inspect", "--num-ids", "500", "--num-hashes", "128", "--json")
    report = json.loads(result.stdout.splitlines()[-1])
    assert [encoding["name"] for encoding in report["encodings"]][-1] == "dense hash"
    assert report["encodings"][-1]["unique"]


def test_a_mistake_ends_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tableless", "inspect", "--num-ids", "1"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_command_but_serve_has_json_as_the_documentation_says():
    commands = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
    assert [command for command in commands if "--json" not in run(command, "--help").stdout] == ["serve"]
    assert "`--json` (all but `serve`)" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command", [command.name or command.callback.__name__ for command in cli.app.registered_commands]
)
def test_every_command_shows_an_example_in_its_help(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: tableless {command}" in result.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("command", "kinds"),
    [("train", (DataConfig, ModelConfig, TrainConfig)), ("serve", (AnswerSettings, ServerSettings))],
)
def test_options_have_the_defaults_and_the_help_of_the_dataclasses(command, kinds):
    options = {parameter.name: parameter for parameter in typer.main.get_command(cli.app).commands[command].params}
    described = [each for kind in kinds for each in fields(kind) if "help" in each.metadata]
    assert len(described) > 5
    for each in described:
        assert options[each.name].help.partition("  [")[0] == each.metadata["help"]
        assert options[each.name].required == (each.default is MISSING)
        if each.default is not MISSING:
            assert options[each.name].default == each.default


@dataclass(frozen=True)
class Dinner:
    guests: int = field(metadata={"argument": True, "help": "How many."})
    dishes: tuple = ("soup",)
    drink: Literal["tea", "water"] = field(default="tea", metadata={"help": "One of two."})
    num_spoons: int = field(default=2, metadata={"option": "--spoons", "envvar": "SPOONS", "help": "Each."})


def dine(*arguments, **environment):
    """What a command is given that takes a dataclass as a whole, and another of its fields by itself."""
    app, given = typer.Typer(), []

    @app.command()
    @options_from_dataclasses
    def invite(*, first: Dinner, loud: bool = False, second: Annotated[TrainConfig, Only("seed")]) -> None:
        given.append((first, loud, second))

    result = CliRunner().invoke(app, list(arguments), env=environment)
    return given[0] if given else result


def test_a_command_is_handed_dataclasses_made_from_its_options():
    assert dine("3") == (Dinner(3), False, TrainConfig())
    typed = dine("3", "--spoons", "5", "--drink", "water", "--loud", "--seed", "7")
    assert typed == (Dinner(3, drink="water", num_spoons=5), True, TrainConfig(seed=7))
    assert dine("3", SPOONS="4")[0].num_spoons == 4


@pytest.mark.parametrize(
    "arguments", [["3", "--dishes", "cake"], ["3", "--epochs", "1"], ["3", "--num-spoons", "1"], []]
)
def test_what_is_no_option_of_a_dataclass_is_refused(arguments):
    assert dine(*arguments).exit_code == 2


def test_a_choice_that_is_not_offered_is_refused_by_the_name_of_its_option():
    assert str(dine("3", "--drink", "wine").exception) == "--drink is 'wine'; it must be tea or water"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory of an open scheme, and one of a closed one."""
    folder = tmp_path_factory.mktemp("runs")
    for scheme in ("dhe", "full"):
        arguments = ["--budget", "1/1", "--scheme", scheme, "--epochs", "2", "--batch-size", "256"]
        with few_visits():
            result = run("train", WORLD, *arguments, "--out", str(folder / scheme), "--json")
        assert result.exit_code == 0, result.output
    return folder


def last_json(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_train_reports_what_the_issue_asks_for(trained):
    results = json.loads((trained / "dhe" / "results.json").read_text())
    expected = {"auc", "validation_auc", "hr@10", "ndcg@10", "num_parameters", "embedding_parameters", "seconds"}
    assert expected | {"popularity_auc", "best_possible_auc"} <= results.keys()


@pytest.mark.parametrize("scheme", ["dhe", "full"])
def test_train_reports_bytes_by_part_and_for_each_known_id(trained, scheme):
    results = json.loads((trained / scheme / "results.json").read_text())
    parts = results["bytes_by_part"]
    assert parts.keys() == {"users", "items"}
    assert results["bytes"] == sum(sum(own.values()) for own in parts.values())
    num_ids = results["num_users"] + results["num_items"]
    assert results["bytes_per_id"] == pytest.approx(results["bytes"] / num_ids, abs=1e-3)
    if scheme == "full":
        assert parts["users"]["weights"] == 4 * 32 * results["num_users"]
    else:
        assert 0.9 * 4 * 32 * num_ids < results["bytes"] <= 4 * 32 * num_ids  # 1/1


def test_train_for_people_ends_in_a_table(tmp_path):
    result = run("train", WORLD, "--scheme", "full", "--epochs", "1", "--out", str(tmp_path / "run"))
    assert "test AUC" in result.stdout
    assert "best possible" in result.stdout
    assert "bytes of the embeddings" in result.stdout
    assert "for each known id" in result.stdout
    assert f"tableless recommend {tmp_path / 'run'}" in result.stdout


def test_user_ids_for_the_page_are_kept_unless_they_are_not_wanted(trained, tmp_path):
    kept = trained / "full" / "example_users.json"
    assert len(json.loads(kept.read_text())["users"]) == 3
    last_json(run("train", WORLD, "--scheme", "full", "--epochs", "1", "--out", str(tmp_path / "run"), "--json",
                  "--no-example-users"))  # fmt: skip
    assert tableless.load(tmp_path / "run").facts["example_users"] == []
    streamed_too = streamed(tmp_path, "--budget", "30000", "--no-example-users")
    assert "no use for --no-example-users" in str(streamed_too.exception), "a stream keeps none anyway"


SIZES = ("bytes", "bytes_per_id", "bytes_by_part", "embedding_parameters", "num_parameters")


def test_evaluate_measures_what_training_measured(trained):
    for scheme in ("dhe", "full"):
        before = json.loads((trained / scheme / "results.json").read_text())
        after = last_json(run("evaluate", str(trained / scheme), "--json"))
        assert after["auc"] == pytest.approx(before["auc"], abs=1e-6)
        assert [after[size] for size in SIZES] == [before[size] for size in SIZES]


def test_a_test_file_is_taken_by_training_and_by_evaluation(tmp_path):
    generator = np.random.default_rng(0)
    rows = np.unique(
        np.stack([generator.integers(0, 60, 900) * 7, generator.integers(0, 40, 900) + 100], axis=1), axis=0
    )
    rows = generator.permutation(rows)
    data, test, folder = str(tmp_path / "data.csv"), str(tmp_path / "test.parquet"), str(tmp_path / "run")
    pl.DataFrame(rows[100:], schema=["user", "item"]).write_csv(data)
    pl.DataFrame(rows[:100], schema=["who", "what"]).write_parquet(test)
    named = ["--user-col", "user", "--item-col", "item"]
    settings = ["--scheme", "full", "--epochs", "1", "--out", folder]
    assert "has no column 'user'" in str(run("train", data, "--test", test, *named, *settings).exception)
    pl.DataFrame(rows[:100], schema=["user_id", "item"]).write_parquet(test)
    before = last_json(run("train", data, "--test", test, *settings, "--json"))
    assert before["held_out"] == before["evaluated"] == len(np.unique(rows[:100, 0]))
    assert f"--data {data} --test {test}" in str(run("evaluate", folder).exception)
    after = last_json(run("evaluate", folder, "--data", data, "--test", test, "--json"))
    assert after["held_out"] == before["held_out"]
    assert after["auc"] == before["auc"]


def test_evaluate_takes_negatives_as_ncf_has_them(trained, tmp_path):
    path = tmp_path / "test.negative"
    path.write_text("(3,7)\t1\t2\t5\n(4,9)\t1\t2\t5\n")
    result = last_json(run("evaluate", str(trained / "dhe"), "--negatives", str(path), "--json"))
    assert result["evaluated"] == 2
    assert result["hr@10"] == 1.0
    path.write_text("3 7 1 2\n")
    assert "line 1: expected (user,item)" in str(
        run("evaluate", str(trained / "dhe"), "--negatives", str(path)).exception
    )


def test_recommend_lists_items_for_known_and_new_users(trained, tmp_path):
    for user in ("3", "123456789"):
        items = last_json(run("recommend", str(trained / "dhe"), "--user", user, "-n", "4", "--json"))["items"]
        assert len(items) == 4
        assert [row["score"] for row in items] == sorted((row["score"] for row in items), reverse=True)
    titles = tmp_path / "titles.csv"
    titles.write_text("movieId,title\n" + "\n".join(f"{item},Film {item}" for item in range(200)))
    result = run("recommend", str(trained / "dhe"), "--user", "3", "--items", str(titles))
    assert "Film " in result.stdout


def test_a_table_says_that_it_cannot_answer_for_a_new_user(trained):
    result = run("recommend", str(trained / "full"), "--user", "123456789")
    assert "open to new ids" in str(result.exception)
    assert last_json(run("recommend", str(trained / "full"), "--user", "3", "--json"))["items"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".txt"])
def test_embed_writes_a_vector_for_each_id(trained, tmp_path, suffix):
    ids = pl.DataFrame({"id": [5, 999_999, 7, 5]})
    source = tmp_path / f"ids{suffix}"
    {".parquet": ids.write_parquet, ".csv": ids.write_csv}.get(
        suffix, lambda path: path.write_text("5\n999999\n7\n5\n")
    )(source)
    out = tmp_path / "new" / "vectors.parquet"
    assert (
        last_json(run("embed", str(trained / "dhe"), "--ids", str(source), "--out", str(out), "--json"))["count"] == 4
    )
    frame = pl.read_parquet(out)
    assert frame["id"].to_list() == [5, 999_999, 7, 5]
    vectors = frame["vector"].to_numpy()
    assert vectors.shape == (4, 32)
    np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-6)


def test_compare_ends_in_a_table_and_a_picture(tmp_path):
    arguments = [
        "--schemes",
        "full,low-rank",
        "--budgets",
        "1/2",
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--out",
        str(tmp_path),
    ]
    result = run("compare", WORLD, *arguments)
    assert "low-rank" in result.stdout
    assert (tmp_path / "auc-by-size.png").read_bytes().startswith(b"\x89PNG")
    rows = last_json(run("compare", WORLD, *arguments, "--json"))["rows"]
    assert {row["scheme"] for row in rows} == {"full", "low-rank"}


def test_the_demonstration_compares_four_schemes_by_bytes_and_keeps_one_that_answers_for_anyone(
    tmp_path, monkeypatch, short_fits
):
    monkeypatch.setattr(demo, "DEMO_DATA", f"{WORLD},seed={{seed}}")
    result = last_json(run("demo", "--out", str(tmp_path), "--json"))
    sizes = {row["scheme"]: row["bytes_per_id"] for row in result["rows"]}
    assert sizes.keys() == {"full", "coded", "dhe", "hashing-trick"}
    assert sizes.pop("full") > 128
    assert all(7 < size <= 8 for size in sizes.values())
    assert (tmp_path / "auc-by-size.png").read_bytes().startswith(b"\x89PNG")
    assert result["picture"] == str(tmp_path / "auc-by-size.png")
    answer = last_json(run("recommend", result["model"], "--user", "987654321", "-n", "3", "--json"))
    assert len(answer["items"]) == 3


def test_bench_prints_a_table_with_its_machine_and_for_machines_the_same_in_json():
    arguments = ["--vocab-size", "2000", "--batch", "5", "--queries", "100"]
    result = run("bench", *arguments)
    assert result.exit_code == 0, result.output
    assert "dhe as published" in result.stdout
    assert "1 thread(s)" in result.stdout
    report = last_json(run("bench", *arguments, "--json"))
    assert report["times"][0]["name"] == "full"
    assert report["times"][0]["seconds_per_million"].keys() == {"median", "low", "high"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--queries", "10"], "10 queries are too few"),
        (["train", "no-such-file.csv"], "no-such-file.csv"),
        (["train", "world", "--scheme", "magic"], "no scheme is called 'magic'"),
        (["train", "world", "--backbone", "magic"], "no backbone is called 'magic'"),
        (["train", "world", "--split", "magic"], "split is 'magic'"),
        (["train", "world", "--recipe", "magic"], "--recipe is 'magic'; it must be fast or paper"),
        (["compare", "world", "--schemes", "full,magic"], "no scheme is called 'magic'"),
        (["train", "world", "--split", "column", "--test", "x.csv"], "x.csv is the split"),
        (["compare", "world", "--test", "x.csv", "--core", "5"], "core 5 cannot be used with a given split"),
        (["compare", "world", "--split", "column"], "world has no given split"),
        (["train", "world", "--budget", "10"], "too small"),
        (["train", "world", "--stream"], "share of a full table"),
        (["train", "world", "--stream", "--budget", "0.25"], "share of a full table"),
        (
            ["train", "world", "--stream", "--budget", "8B/id"],
            "budget of 8B/id is a share of a full table, or bytes for",
        ),
        (["recommend", "no-such-run", "--user", "1"], "no trained model"),
        (["embed", "no-such-run", "--ids", "x", "--out", "y", "--side", "device"], "must be user or item"),
    ],
)
def test_a_mistake_is_named_in_one_line(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tableless", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("tableless: ")
    assert message in error


def streamed(tmp_path, *arguments):
    """`train --stream` on a small parquet file, with ids that are no row numbers."""
    rows = [{"user": f"u-{number % 37}", "item": 10_007 * (number % 23) - 5} for number in range(400)]
    pl.DataFrame(rows).write_parquet(tmp_path / "actions.parquet")
    return run("train", str(tmp_path / "actions.parquet"), "--stream", "--json", *arguments)


@pytest.mark.parametrize("budget", ["0.12MB", "120 KB", "30000", "30.5KiB", "30000 parameters"])
def test_a_stream_takes_memory_with_a_point_and_numbers_of_parameters(budget, tmp_path):
    result = last_json(streamed(tmp_path, "--budget", budget))
    assert result["actions"] == 400
    assert result["bytes"] == sum(sum(own.values()) for own in result["bytes_by_part"].values())
    assert result["bytes_per_id"] is None  # nobody knows how many ids there are
    if "B" in budget:
        assert 25_000 < result["bytes"] <= (31_232 if "KiB" in budget else 120_000)
    else:  # each of them pays for four bytes, of whatever part
        assert 100_000 < result["bytes"] <= 120_000
        assert result["embedding_parameters"] <= 30_000


@pytest.mark.parametrize(
    "option",
    [
        ["--epochs", "50"],  # the default: typed, it would still not be followed
        ["--resume"],
        ["--recipe", "paper"],
        ["--core", "5"],
        ["--split", "global-time"],
        ["--time-col", "t"],
        ["--patience", "3"],
        ["--cache-dir", "cache"],
    ],
)
def test_a_stream_refuses_each_option_that_it_would_ignore(option, tmp_path):
    result = streamed(tmp_path, "--budget", "30000", *option)
    assert isinstance(result.exception, ValueError), result.output
    assert f"no use for {option[0]};" in str(result.exception)


def test_a_stream_takes_every_other_option_and_names_all_that_it_refuses(tmp_path):
    options = ["--scheme", "hashing-trick", "--backbone", "gmf", "--batch-size", "64", "--learning-rate", "0.01",
               "--weight-decay", "0.1", "--negatives-per-positive", "2", "--seed", "3", "--embedding-dim", "8",
               "--user-col", "user", "--item-col", "item", "--device", "cpu", "--data-dir", str(tmp_path)]  # fmt: skip
    assert last_json(streamed(tmp_path, "--budget", "30000", *options))["actions"] == 400
    refused = streamed(tmp_path, "--budget", "30000", "--core", "5", "--resume", *options)
    assert "--resume, --core" in str(refused.exception)


NEVER_READ = "no-such-file.csv"  # the error would name it, had it been read first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", NEVER_READ, "--schemes", "dhe,blom"], "did you mean 'bloom'?"),
        (["compare", NEVER_READ, "--schemes", "dhe,foo"], "no scheme is called 'foo'; known are dhe"),
        (["compare", NEVER_READ, "--schemes", "full", "--budgets", "a quarter"], "'a quarter' is not understood"),
        (["compare", NEVER_READ, "--schemes", "dhe", "--budgets", "1/2,1/x"], "'1/x' is not understood"),
        (["compare", NEVER_READ, "--backbones", "gmf,mpl"], "did you mean 'mlp'?"),
        (["compare", NEVER_READ, "--recipe", "papr"], "did you mean 'paper'?"),
        (["compare", NEVER_READ, "--split", "leave-one-ot"], "did you mean 'leave-one-out'?"),
        (["train", NEVER_READ, "--scheme", "DHE"], "did you mean 'dhe'?"),
        (["train", NEVER_READ, "--backbone", "gmff"], "did you mean 'gmf'?"),
        (["train", NEVER_READ, "--budget", "1/x"], "'1/x' is not understood"),
        (["train", NEVER_READ, "--device", "cdua"], "did you mean 'cuda'?"),
        (["train", NEVER_READ, "--stream", "--budget", "9000", "--device", "cup"], "did you mean 'cpu'?"),
        (["train", "movielens-1n"], "did you mean 'movielens-1m'?"),
        (["serve", "no-such-run", "--precision", "int9"], "did you mean 'int8'?"),
        (["export", "no-such-run", "--out", "x", "--format", "onx"], "did you mean 'onnx'?"),
        (["embed", "no-such-run", "--ids", "x", "--out", "y", "--side", "itm"], "did you mean 'item'?"),
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_read_with_the_nearest_known_one(
    arguments, message, monkeypatch, capsys
):
    error = mistake(monkeypatch, capsys, *arguments)
    assert message in error
    assert NEVER_READ not in error


def mistake(monkeypatch, capsys, *arguments):
    """The line that a command ends in."""
    monkeypatch.setattr("sys.argv", ["tableless", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_schemes_may_be_listed_with_spaces_behind_the_commas(monkeypatch, capsys):
    assert NEVER_READ in mistake(monkeypatch, capsys, "compare", NEVER_READ, "--schemes", "dhe, bloom")


def test_the_version_is_told():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"tableless {tableless.__version__}"


@pytest.mark.parametrize(
    "command", [[], *([command.name or command.callback.__name__] for command in cli.app.registered_commands)]
)
def test_h_is_help(command):
    short, long = run(*command, "-h"), run(*command, "--help")
    assert short.exit_code == 0
    assert short.stdout == long.stdout


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("time_col='' leaves times out", "--time-col '' leaves times out"),
        ("give another as time_col", "give another as --time-col"),
        ("split is 'x'; it must be column", "--split is 'x'; it must be column"),
        ("max_ids is 0; it must be at least 1", "--max-ids is 0; it must be at least 1"),
        ("try epochs=600, recipe='paper' or batch_size=512.", "try --epochs 600, --recipe paper or --batch-size 512."),
        ("num_negatives is 0", "--negatives-per-positive is 0"),
        ("say which does (--user-col, user_col): a, b", "say which does (--user-col): a, b"),
        ("has no column 'time_col'; it has user_col.csv", "has no column 'time_col'; it has user_col.csv"),
        ("the data is good, and its split too", "the data is good, and its split too"),
    ],
)
def test_arguments_are_named_as_they_were_typed(message, typed):
    assert as_typed(message) == typed


def test_a_mistake_names_the_option_and_not_the_variable(tmp_path, monkeypatch, capsys):
    data = tmp_path / "data.csv"
    data.write_text("user,item,time\n" + "".join(f"{n % 5},{n % 7},{n}\n" for n in range(60)) + "1,2,soon\n")
    error = mistake(monkeypatch, capsys, "train", str(data), "--epochs", "1")
    assert "--time-col" in error
    assert "time_col" not in error
    with pytest.raises(ValueError, match="time_col"):
        tableless.train(str(data))


def test_a_long_title_is_cut_to_the_width_of_the_terminal(trained, tmp_path, monkeypatch):
    titles = tmp_path / "titles.csv"
    titles.write_text("movieId,title\n" + "\n".join(f"{item},{'long ' * 50}" for item in range(200)))
    monkeypatch.setenv("COLUMNS", "70")
    asked = ["recommend", str(trained / "dhe"), "--user", "3", "--items", str(titles)]
    lines = [line for line in run(*asked).stdout.splitlines() if "long" in line]
    assert lines
    assert {len(line) for line in lines} == {70}
    assert all(line.endswith("…") for line in lines)
    assert len(last_json(run(*asked, "--json"))["items"][0]["title"]) > 200


def test_results_that_are_no_better_than_popularity_say_so_and_what_to_try(trained, tmp_path):
    arguments = ["--scheme", "full", "--epochs", "1", "--batch-size", "5000", "--learning-rate", "1e-6"]
    result = run("train", WORLD, *arguments, "--out", str(tmp_path / "weak"))
    warning = next(line for line in result.stdout.splitlines() if line.startswith("Warning: "))
    assert "popularity alone" in warning
    assert "--batch-size 64 " in warning
    assert "--epochs 1" in warning
    assert "The model is that of epoch 1." in result.stdout
    again = run("evaluate", str(tmp_path / "weak"))
    assert "Warning: The test AUC" in again.stdout
    assert "batch_size=64" in last_json(run("evaluate", str(tmp_path / "weak"), "--json"))["warning"]


def test_evaluate_refuses_ids_of_another_kind_and_takes_other_names_of_columns(trained, tmp_path):
    generator = np.random.default_rng(0)
    pairs = np.unique(generator.integers(0, (200, 120), (3000, 2)), axis=0)
    numbers, strings = tmp_path / "numbers.csv", tmp_path / "strings.csv"
    pl.DataFrame(pairs, schema=["who", "what"]).write_csv(numbers)
    pl.DataFrame({"user": [f"u{user}" for user in pairs[:, 0]], "item": pairs[:, 1]}).write_csv(strings)
    refused = str(run("evaluate", str(trained / "dhe"), "--data", str(strings)).exception)
    assert "user ids are strings" in refused
    assert "they would never match" in refused
    named = ["--user-col", "who", "--item-col", "what"]
    assert last_json(run("evaluate", str(trained / "dhe"), "--data", str(numbers), *named, "--json"))["evaluated"] > 100


def test_a_user_without_a_row_is_named(trained):
    message = str(run("recommend", str(trained / "full"), "--user", "17850").exception)
    assert message.startswith("user 17850 was not in the training data, and this scheme has no row for it")


def test_recommend_says_whether_the_user_is_known(trained):
    assert last_json(run("recommend", str(trained / "full"), "--user", "3", "--json"))["known"] is True
    assert last_json(run("recommend", str(trained / "dhe"), "--user", "3", "--json"))["known"] is None
    with_data = [str(trained / "dhe"), "--interactions", WORLD]
    assert last_json(run("recommend", *with_data, "--user", "3", "--json"))["known"] is True
    assert last_json(run("recommend", *with_data, "--user", "987654", "--json"))["known"] is False
    assert "User 987654 is new" in run("recommend", *with_data, "--user", "987654").stdout

"""Click models from a frame to answers: trained, stored, loaded, measured again, exported, and by the command line."""

import json

import numpy as np
import onnxruntime
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import tableless
from tableless.cli import app, main
from tableless.recommender.clicks import sizing
from tests.data.clicks.tiny_clicks import COLUMNS, tiny_clicks

QUICK = tableless.TrainConfig(epochs=12, learning_rate=0.01, batch_size=64)
ASKED = {
    "user": [-11, 7919 * 3 - 11, None, 5],
    "item": ["item 3", "item 9", None, "no such item"],
    "device": ["tv", None, "phone", "radio"],
    "tags": [["t1", "t2"], [], None, ["t0"]],
    "price": [2.5, None, 4.0, 1e9],
}


@pytest.fixture(autouse=True)
def few_values(monkeypatch):
    monkeypatch.setattr(sizing, "FEW_VALUES", 8)  # so that users and items count as many


def train(scheme="dhe", **arguments):
    settings = {"backbone": "fm", "budget": "1/2", "embedding_dim": 8, "config": QUICK, **arguments}
    return tableless.train_clicks(tiny_clicks(), columns=COLUMNS, label="clicked", scheme=scheme, **settings)


@pytest.fixture(scope="module")
def clicks_csv(tmp_path_factory):
    path = tmp_path_factory.mktemp("clicks") / "clicks.csv"
    tiny_clicks().write_csv(path)
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "FEW_VALUES", 8)
        directory = tmp_path_factory.mktemp("runs") / "clicks"
        model = train(backbone="deepfm", column_schemes={"user": "coded"}, out=directory)
    return directory, model


def test_a_trained_model_is_better_than_any_column_alone():
    results = train("full").results
    assert results["auc"] > results["popularity"]["auc"] > 0.6
    assert results["log_loss"] < results["popularity"]["base_rate_log_loss"]
    assert [stage["stage"] for stage in results["stages"]] == ["tables"]
    assert results["values"]["tags"] == 5


def test_a_small_model_keeps_what_its_tables_know():
    table, small = train("full").results, train("dhe").results
    assert [stage["stage"] for stage in small["stages"]] == ["tables", "fit", "tuning", "rounding"]
    assert small["bytes"] < table["bytes"] * 0.6
    assert small["auc"] > table["auc"] - 0.03


def test_a_stored_run_answers_as_the_model_that_was_trained(run):
    directory, model = run
    again = tableless.load_clicks(directory)
    chances = model.probabilities(ASKED)
    assert torch.equal(again.probabilities(ASKED), chances)
    assert ((chances > 0) & (chances < 1)).all()
    frame = pl.DataFrame({**ASKED, "tags": ["t1|t2", "", None, "t0"]})
    assert torch.equal(again.probabilities(frame), chances), "lists may be text as well, and columns of a frame"
    assert again.score({name: [] for name in ASKED}).shape == (0,)
    assert again.facts["bytes"] == model.results["bytes"]


def test_a_run_is_kept_where_the_user_says(run, tmp_path):
    run[1].save(tmp_path / "kept")
    assert torch.equal(tableless.load_clicks(tmp_path / "kept").score(ASKED), run[1].score(ASKED))
    with pytest.raises(FileExistsError, match="holds a run already"):
        run[1].save(tmp_path / "kept")


def test_the_same_seed_gives_the_same_model():
    assert torch.equal(train("low-rank").score(ASKED), train("low-rank").score(ASKED))


def test_a_run_is_measured_again_to_the_last_digit(run, clicks_csv, tmp_path):
    directory, model = run
    names = ("auc", "auc_se", "log_loss", "log_loss_se", "validation", "popularity", "evaluated")
    wanted = {name: model.results[name] for name in names}
    assert tableless.evaluate(model) == wanted
    assert tableless.evaluate(directory, data=clicks_csv) == wanted
    with pytest.raises(ValueError, match="name that file to measure on its test rows"):
        tableless.evaluate(directory)
    later = tableless.evaluate(directory, tiny_clicks().tail(400))
    assert later["evaluated"] == 400
    assert later["auc"] > 0.6


def test_actions_without_labels_are_learned_from_drawn_items():
    world = "world:users=200,items=300,actions=3000"
    model = tableless.train_clicks(world, columns="user,item", scheme="full", embedding_dim=8, config=QUICK)
    assert model.results["popularity"]["base_rate"] == pytest.approx(0.2)
    assert model.results["auc"] > 0.6
    assert tableless.evaluate(model.directory)["auc"] == model.results["auc"], "a world is known by its name"


def test_the_paper_s_recipe_trains_from_nothing():
    config = tableless.TrainConfig(epochs=2, recipe="paper", batch_size=64)
    results = train("dhe", config=config).results
    assert [stage["stage"] for stage in results["stages"]] == ["from nothing"]
    with pytest.raises(ValueError, match="codes the rows of a trained table"):
        train("coded", config=config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": tableless.TrainConfig(temperature=0.2)}, "temperature is 0.2, and a click model has no use for it"),
        ({"backbone": "gmf"}, "no backbone of a click model is called 'gmf'; known are fm, deepfm, dcn, dlrm"),
    ],
)
def test_what_means_nothing_here_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        train(**arguments)


def test_recommenders_and_click_models_name_each_other(run):
    with pytest.raises(ValueError, match=r"holds a click model.*tableless.load_clicks loads it"):
        tableless.load(run[0])
    with pytest.raises(ValueError, match="holds no click model; `tableless train DATA --columns"):
        tableless.load_clicks("nowhere")
    with pytest.raises(ValueError, match=r"backbone='dcn' is for a click model; name its columns by --columns"):
        tableless.train("nowhere.csv", backbone="dcn")


def test_damaged_runs_are_refused(run, tmp_path):
    run[1].save(tmp_path / "copy")
    path = tmp_path / "copy" / "config.json"
    config = json.loads(path.read_text())
    config["model"]["columns"]["0"]["kind"] = "colour"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="does not describe a model"):
        tableless.load_clicks(tmp_path / "copy")
    config["model"]["columns"]["0"]["kind"] = "integer"
    config["model"]["columns"]["2"]["vectors"]["num_values"] = 2**40
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"does not (belong|describe)"):
        tableless.load_clicks(tmp_path / "copy")


@pytest.mark.parametrize(
    ("backbone", "scheme", "column_schemes"),
    [("fm", "joint", {}), ("dcn", "dhe", {}), ("dlrm", "low-rank", {"user": "coded", "tags": "dhe:600B"})],
)
def test_an_exported_file_says_what_the_model_says(backbone, scheme, column_schemes, tmp_path):
    config = tableless.TrainConfig(epochs=1, batch_size=256)
    model = train(scheme, backbone=backbone, column_schemes=column_schemes, config=config)
    report = tableless.export(model, tmp_path / "exported")
    described = json.loads((tmp_path / "exported" / "export.json").read_text())["files"][0]
    assert [own["side"] for own in described["inputs"]] == ["user", "item", "device", "tags", "price"]
    assert described["agreement"]["checked"] == 1000
    session = onnxruntime.InferenceSession(tmp_path / "exported" / report.files[0].file)
    missing = int(tableless.to_ids(""))

    def ids(values):
        return np.array([missing if value is None else int(tableless.to_ids(value)) for value in values])

    lists = [ids([*(own or []), *[None] * (3 - len(own or []))]) for own in ASKED["tags"]]
    given = [ids(ASKED["user"]), ids(ASKED["item"]), ids(ASKED["device"]), np.stack(lists)]
    given.append(np.float32([np.nan if price is None else price for price in ASKED["price"]]))
    (logits,) = session.run(None, {f"column_{place}": own for place, own in enumerate(given)})
    torch.testing.assert_close(torch.from_numpy(logits), model.score(ASKED), rtol=1e-4, atol=1e-4)


def test_an_export_as_a_torch_program_and_what_is_refused(run, tmp_path):
    assert tableless.export(run[0], tmp_path / "torch", format="torch").files[0].file == "click_model.pt2"
    with pytest.raises(ValueError, match="a click model is exported as fp32"):
        tableless.export(run[0], tmp_path / "int8", precision="int8")
    with pytest.raises(FileExistsError, match="holds an export already"):
        tableless.export(run[0], tmp_path / "torch")


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_the_command_line_does_what_python_does(clicks_csv, tmp_path):
    options = ["--label", "clicked", "--columns", COLUMNS, "--backbone", "fm", "--budget", "1/2", "--embedding-dim", 8]
    options += ["--epochs", 12, "--learning-rate", 0.01, "--batch-size", 64, "--column-schemes", "user=coded"]
    done = invoke("train", clicks_csv, *options, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["auc"] == train(column_schemes={"user": "coded"}).results["auc"]
    again = invoke("evaluate", tmp_path / "run", "--data", clicks_csv)
    assert "click rates of" in again.stdout
    assert f"{results['auc']:.4f} ± {results['auc_se']:.4f}" in again.stdout
    later = json.loads(invoke("evaluate", tmp_path / "run", "--test", clicks_csv, "--json").stdout.splitlines()[-1])
    assert later["evaluated"] == 1500
    assert "column_3 (tags): ids" in invoke("export", tmp_path / "run", "--out", tmp_path / "exported").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--columns", "user,item", "--core", "5"], "a click model (--columns) has no use for --core; leave it out"),
        (
            ["--columns", "user,item", "--column-schemes", "user"],
            "--column-schemes has 'user'; write a column and its scheme, as in 'user=coded,item=dhe:64KB'",
        ),
        (["--label", "clicked"], "--label is for a click model; name its columns: --columns"),
        (["--backbone", "dlrm"], "--backbone dlrm is for a click model; name its columns by --columns"),
        (["--scheme", "joint"], "--scheme joint is for a click model"),
        (["--columns", "user,itme", "--label", "clicked"], "has no column 'itme'; its columns are user, item"),
    ],
)
def test_mistakes_on_the_command_line_end_in_one_line(options, message, clicks_csv, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tableless", "train", clicks_csv, *options])
    with pytest.raises(SystemExit):
        main()
    assert message in capsys.readouterr().err

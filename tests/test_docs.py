"""The documentation keeps its word: examples run, commands have the options it names, links lead somewhere."""

import dataclasses
import inspect
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import typer

import tableless
from tableless import SCHEMES, DeepHashEmbedding, HashFamily, cli, to_ids
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tests.documents import PAGES, ROOT, command_lines, example_of, links, name_of, python_examples
from tests.embedding import test_scheme_contract as contract

FUNCTIONS = [
    tableless.train,
    tableless.evaluate,
    tableless.compare,
    tableless.export,
    tableless.load,
    tableless.to_ids,
    tableless.embedding_for,
    tableless.distil,
    tableless.replace_embeddings,
    tableless.tune,
    tableless.distillation_loss,
    tableless.load_scheme,
    tableless.load_replaced,
]
CLASSES = [
    tableless.GMF,
    tableless.MLP,
    tableless.DeepHashEmbedding,
    tableless.JointEmbedding,
    tableless.EmbeddingBag,
    tableless.HashFamily,
    tableless.LSH,
    tableless.SideFeatures,
    tableless.Replacements,
]
RECORDS = [
    tableless.TrainConfig,
    tableless.Progress,
    tableless.Distillation,
    tableless.Replacement,
    tableless.LeftAlone,
    tableless.Tuning,
]
OTHERS = [tableless.save_scheme, tableless.save_replaced, tableless.TrainedModel.save, tableless.TrainedFromNothing]
EXAMPLES = [
    *(
        pytest.param(code, id=f"{name_of(page)}-{number}")
        for page in PAGES
        for number, code in enumerate(python_examples(page))
    ),
    *(pytest.param(example_of(thing), id=thing.__name__) for thing in (*FUNCTIONS, *CLASSES, *RECORDS, *OTHERS)),
]
COMMANDS = [pytest.param(line, id=" ".join(line)) for page in PAGES for line in command_lines(page)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What `tableless train world` leaves, in small: the examples take it for `runs/mine`."""
    data = DataConfig(data="world:users=100,items=1000,actions=2000,clusters=4")
    directory = tmp_path_factory.mktemp("trained") / "mine"
    training = TrainConfig(epochs=1, batch_size=256, recipe="paper")
    train_and_measure(
        data,
        ModelConfig(budget="20000", embedding_dim=16, options={"depth": 1}),
        training,
        load_split(data),
        out=directory,
    )
    return directory


@pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")  # some replace tables of noise
@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs_as_it_is_written(code, trained, tmp_path, monkeypatch, short_fits):
    shutil.copytree(trained, tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert len(namespace) > 2, "it imported and defined something"


def explained(thing: object, section: str) -> list[str]:
    """The names that a section of a docstring explains."""
    listed = (inspect.getdoc(thing) or "").partition(f"\n{section}:\n")[2].partition("\n\n")[0]
    return re.findall(r"^    (\w+): \S", listed, re.MULTILINE)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_parameter_of_a_public_function_is_explained(function):
    documented = inspect.getdoc(function)
    assert explained(function, "Args") == list(inspect.signature(function).parameters)
    assert all(f"\n{section}:\n    " in documented for section in ("Returns", "Raises", "Example"))


@pytest.mark.parametrize(
    "thing", [*CLASSES, tableless.save_scheme, tableless.save_replaced], ids=lambda thing: thing.__name__
)
def test_every_argument_of_a_public_class_is_explained(thing):
    assert explained(thing, "Args") == list(inspect.signature(thing).parameters)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_public_record_is_explained(record):
    assert explained(record, "Attributes") == [field.name for field in dataclasses.fields(record)]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_line_has_options_that_exist_and_nothing_is_missing(line):
    commands = typer.main.get_command(cli.app).commands
    context = commands[line[0]].make_context(line[0], [word for word in line[1:] if word != "&"])
    assert context.params, "it was parsed, and nothing was run"


def test_command_lines_were_found_on_every_kind_of_page():
    pages = {name_of(page) for page in PAGES if command_lines(page)}
    assert {"README.md", "docs/index.md", "docs/serving.md", "docs/scaling-out.md"} <= pages
    assert any(line[0] == "train" and "--stream" in line for page in PAGES for line in command_lines(page)), "torchrun"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_of_the_repository(page):
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert missing == []


def test_every_command_is_on_the_page_of_the_commands():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    names = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
    assert [name for name in names if f"| `tableless {name}` |" not in page] == []


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in tableless.__all__ if f"::: tableless.{name}\n" not in page] == []


def test_the_numbers_in_the_picture_are_real():
    picture = (ROOT / "docs" / "how-it-works.svg").read_text(encoding="utf-8").replace("−", "-")
    embedding = DeepHashEmbedding.from_budget(330_000, embedding_dim=32, vocab_size=1_000_000)
    ids = to_ids(["user_42"])
    buckets = HashFamily(64, 1_000_000, seed=0)(ids)[0].tolist()
    codes, vector = embedding.encoder(ids)[0].tolist(), embedding(ids)[0].tolist()
    floats = [*codes[:4], codes[-1], *vector[:3]]
    shown = [*ids.tolist(), *buckets[:4], buckets[-1], *(f"{value:.4f}" for value in floats)]
    assert [number for number in shown if f">{number}<" not in picture] == []
    assert (embedding.num_experts, embedding.width, embedding.depth) == (3, 175, 4)
    assert embedding.router(ids).item() == 1, "the one in the middle"


@pytest.mark.filterwarnings("ignore")  # the ONNX exporter's own
def test_the_scheme_of_contributing_takes_twelve_lines_and_keeps_the_contract(tmp_path, monkeypatch):
    (code,) = python_examples(ROOT / "CONTRIBUTING.md")
    body = code.partition("class ")[2].splitlines()[1:]
    assert len([line for line in body if line.strip() and '"""' not in line]) == 12
    namespace: dict[str, object] = {}
    exec(code, namespace)
    monkeypatch.setitem(SCHEMES, "product", namespace["ProductOfRows"])
    contract.test_any_leading_shape_gives_one_vector_per_id("product", True)
    contract.test_another_seed_gives_other_vectors_and_the_same_seed_the_same("product")
    contract.test_gradient_reaches_every_parameter("product")
    contract.test_embeddings_start_at_the_scale_of_recommenders("product")
    contract.test_a_budget_of_bytes_is_kept_and_nearly_used("product", "1/4")
    contract.test_a_budget_of_parameters_is_kept_and_nearly_used("product", "1/4 parameters")
    contract.test_a_budget_too_small_says_what_the_smallest_is("product", "bytes")
    contract.test_the_bytes_are_those_of_the_file_and_of_the_map_of_a_closed_scheme("product", 0, tmp_path / "saved")
    contract.test_config_is_plain_and_builds_the_same_scheme_again("product")
    contract.test_open_schemes_answer_for_any_id_and_closed_ones_name_the_id_they_lack("product")
    contract.test_onnx_agrees("product", tmp_path)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="pip install 'tableless[docs]'")
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.name: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert "--max-in-flight" in pages["cli.html"], "commands are described by their own help"
    assert "The best known items for a user" in pages["api.html"], "and classes by their docstrings"
    loaded = [tag for text in pages.values() for tag in re.findall(r"<(?:script|link|img)[^>]*>", text)]
    assert [tag for tag in loaded if re.search(r'(?:src|href)="(?:https?:)?//', tag)] == []

"""One new film, the whole way: trained by the command, added over HTTP and by the page, and exported. In a browser."""

import functools
import json
import shutil
import socket
import threading
import time
import urllib.request

import numpy as np
import onnxruntime
import pytest
import uvicorn
from typer.testing import CliRunner

import tableless
from tableless import cli
from tableless.serving.http.app import build_app
from tableless.serving.model import TrainedModel
from tableless.serving.settings import ServerSettings
from tests.conftest import few_visits
from tests.films import GENRES, world

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested by playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no `chromium` to test the page in")

FILM, TYPED = 4_611_686_018_427_387_905, 9_007_199_254_740_993  # JavaScript would round both


@pytest.fixture(scope="module")
def films():
    return world()


@pytest.fixture(scope="module")
def run(films, tmp_path_factory):
    """A run that the command has trained, from files."""
    folder = tmp_path_factory.mktemp("films")
    films.actions.write_csv(folder / "ratings.csv")
    films.films.write_csv(folder / "films.csv")
    films.people.write_csv(folder / "people.csv")
    arguments = [
        "train", "ratings.csv", "--budget", "1/1", "--embedding-dim", "8", "--epochs", "6", "--out", "run",
        "--item-features", "films.csv:genres,year", "--user-features", "people.csv",
    ]  # fmt: skip
    placed = [
        str(folder / part) if part.startswith(("ratings", "films", "people", "run")) else part for part in arguments
    ]
    with few_visits():
        result = CliRunner().invoke(cli.app, placed)
    assert result.exit_code == 0, result.output
    return folder / "run"


@pytest.fixture(scope="module")
def address(run):
    listener = socket.create_server(("127.0.0.1", 0))
    app = build_app(run, functools.partial(TrainedModel.from_pretrained), ServerSettings())
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture(scope="module")
def page(address):
    playwright.expect.set_options(timeout=15_000)
    errors = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        browser.close()
    assert not errors


def ids_of(page, panel):
    return [row.get_attribute("data-id") for row in page.locator(f"#{panel} .items a").all()]


def genres_of(films, ids):
    return [films.genre_of.get(int(id)) for id in ids]


def test_a_film_added_over_http_is_found_by_the_page_the_command_and_an_exported_file(
    films, run, address, page, tmp_path
):
    body = json.dumps({"id": FILM, "title": "From afar", "genres": GENRES[1], "year": 1999}).encode()
    request = urllib.request.Request(f"{address}items", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["added"] == [FILM]

    page.goto(f"{address}#item={FILM}")
    playwright.expect(page.locator("#neighbors-heading")).to_have_text("Near From afar")
    playwright.expect(page.locator("#neighbors .items a")).to_have_count(10)
    assert genres_of(films, ids_of(page, "neighbors")).count(1) >= 6
    playwright.expect(page.locator("#neighbors .new")).to_have_count(0)

    person = next(person for person, taste in films.taste_of.items() if taste == 1)
    result = CliRunner().invoke(cli.app, ["recommend", str(run), "--user", str(person), "-n", "60", "--json"])
    assert result.exit_code == 0, result.output
    assert FILM in [row["item"] for row in json.loads(result.stdout)["items"]]

    result = CliRunner().invoke(cli.app, ["export", str(run), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    session = onnxruntime.InferenceSession(tmp_path / "out" / "item_embedding.onnx")
    known = films.actions["item_id"][0]
    (vectors,) = session.run(None, {"ids": np.array([FILM, known])})
    np.testing.assert_allclose(vectors, tableless.load(run).embed([FILM, known]), atol=1e-4, rtol=1e-4)
    pairs = onnxruntime.InferenceSession(tmp_path / "out" / "recommender.onnx")
    (scores,) = pairs.run(None, {"user_ids": np.array([person]), "item_ids": np.array([FILM])})
    np.testing.assert_allclose(scores, tableless.load(run).score([person], [FILM]), atol=1e-4, rtol=1e-4)


def test_the_page_lets_one_try_a_film_and_shows_its_neighbours(films, run, address, page):
    page.goto(address)
    page.get_by_text("Try an item that is new to the model").click()
    form = page.locator("#new-item form")
    form.get_by_label("Id").fill(str(TYPED))
    form.get_by_label("Title").fill("<b>Typed</b>")
    form.get_by_label("genres").fill(GENRES[3])
    form.get_by_label("year").fill("soon")
    form.get_by_role("button", name="Add it").click()
    playwright.expect(form.get_by_role("alert")).to_have_text("Year: it must be a number, not a text.")
    form.get_by_label("year").fill("1984")
    form.get_by_role("button", name="Add it").click()
    playwright.expect(page.locator("#neighbors-heading")).to_have_text("Near <b>Typed</b>")
    playwright.expect(page.locator("#neighbors .items a")).to_have_count(10)
    assert genres_of(films, ids_of(page, "neighbors")).count(3) >= 6
    playwright.expect(form.get_by_label("Id")).to_have_value("")
    assert tableless.load(run).is_known("item", TYPED), "it is on the disk"


def test_a_film_that_is_known_from_training_is_refused_in_a_sentence(films, address, page):
    page.goto(address)
    page.reload()
    page.get_by_text("Try an item that is new to the model").click()
    form = page.locator("#new-item form")
    form.get_by_label("Id").fill(str(films.actions["item_id"][0]))
    form.get_by_role("button", name="Add it").click()
    playwright.expect(form.get_by_role("alert")).to_contain_text("is known from training")
    form.get_by_label("Id").fill("not a number")
    form.get_by_role("button", name="Add it").click()
    playwright.expect(form.get_by_role("alert")).to_have_text("Ids are whole numbers in this data.")


def test_on_a_phone_the_form_fits(address, page):
    page.set_viewport_size({"width": 320, "height": 844})
    page.goto(address)
    page.reload()
    page.get_by_text("Try an item that is new to the model").click()
    playwright.expect(page.locator("#new-item form")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320

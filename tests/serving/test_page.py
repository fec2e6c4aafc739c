"""The page in a real browser: Debian's Chromium, headless, against the real server."""

import csv
import functools
import shutil
import socket
import threading
import time

import pytest
import uvicorn

from tableless.embedding.budget import in_units
from tableless.serving.http.app import build_app
from tableless.serving.model import TrainedModel
from tableless.serving.settings import ServerSettings

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested by playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no `chromium` to test the page in")

SCRIPT = '<img src=x onerror="document.title=1">'
LONG = "A title without end " + "and-without-a-place-to-break-it" * 4
NEIGHBOR, CHOSEN = (11, 122, 111), (58, 76, 180)  # colours of the style sheet


@pytest.fixture(scope="module")
def browser():
    playwright.expect.set_options(timeout=15_000)  # in milliseconds: the machine may be busy
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """A function that opens a page of its own at a width; whatever goes wrong inside the page fails the test."""
    contexts, errors = [], []

    def open_at(address, *, width=1280, height=860, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert not errors


@pytest.fixture(scope="module")
def titles(ratings, tmp_path_factory):
    """Metadata for every item but item-0; two titles are awkward."""
    with ratings.open() as file:
        items = sorted({row["item_id"] for row in csv.DictReader(file)} - {"item-0"})
    path = tmp_path_factory.mktemp("metadata") / "titles.csv"
    with path.open("w", newline="") as file:
        awkward = [SCRIPT, LONG]
        names = awkward + [f"The story of {item}" for item in items[len(awkward) :]]
        csv.writer(file).writerows([("item_id", "title"), *zip(items, names, strict=True)])
    return path


@pytest.fixture(scope="module")
def serve(runs, titles):
    """A function that serves a run and returns its address."""
    servers = []

    def start(run, *, token=None):
        load = functools.partial(TrainedModel.from_pretrained, metadata=titles if run == "open" else None)
        listener = socket.create_server(("127.0.0.1", 0))
        app = build_app(runs / run, load, ServerSettings(token=token))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        servers.append((server, thread, listener))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    yield start
    for server, thread, listener in servers:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="module")
def address(serve):
    return serve("open")


def item_called(title, titles):
    with titles.open() as file:
        return next(row["item_id"] for row in csv.DictReader(file) if row["title"] == title)


def rows(page, panel):
    return page.locator(f"#{panel} .items a")


def wait_for_view(page, text):
    page.wait_for_function("text => decodeURIComponent(location.hash).includes(text)", arg=text)


def wait_for_color(page, color):
    """Wait until the map has pixels of a colour; returns where, as [left, top] inside the canvas."""
    return page.wait_for_function(
        """color => {
            const canvas = document.querySelector("canvas");
            // From a copy that is made for reading: reading the map itself again and again, Chromium complains.
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
            copy.drawImage(canvas, 0, 0);
            const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
            for (let at = 0; at < pixels.length; at += 4)
                if (color.every((value, channel) => pixels[at + channel] === value))
                    return [(at / 4) % canvas.width, Math.floor(at / 4 / canvas.width)];
            return null;
        }""",
        arg=list(color),
    ).json_value()


def expect_no_sideways_scroll(page):
    width = page.viewport_size["width"]  # a phone's innerWidth grows with what it has to show
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_loads_without_errors_and_asks_no_other_host(browser, address):
    context = browser.new_context()
    page = context.new_page()
    requests, messages = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(address)
    playwright.expect(page.locator("#map-caption")).to_contain_text("most popular items")
    playwright.expect(rows(page, "neighbors")).to_have_count(10)
    context.close()
    assert messages == []
    assert any(url.endswith("/facts?") for url in requests)
    assert [url for url in requests if not url.startswith(address)] == []


def test_nothing_in_the_page_needs_more_than_a_strict_policy(open_page, address):
    page = open_page("about:blank")
    policy = {"Content-Security-Policy": "default-src 'self'"}

    def forbid_inline(route):
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, **policy})

    messages = []
    page.on("console", lambda message: messages.append(message.text))
    page.route(address, forbid_inline)
    page.goto(f"{address}#user=user-3&item=item-7")
    playwright.expect(rows(page, "recommendations")).to_have_count(10)
    wait_for_color(page, NEIGHBOR)
    assert messages == []


def test_the_facts_say_what_the_model_costs(open_page, address, runs):
    page = open_page(address)
    facts = TrainedModel.from_pretrained(runs / "open").facts
    playwright.expect(page.locator("[data-fact=bytes]")).to_have_text(in_units(facts["bytes"]))
    share = page.locator("[data-fact=share]")
    playwright.expect(share).to_contain_text(f"of the {in_units(facts['table_bytes'])} that tables would take")
    playwright.expect(share).to_contain_text(f"{facts['bytes_per_id']:.1f} bytes for each id")
    playwright.expect(page.locator("#summary")).to_contain_text("dhe, gmf, 16 dimensions")


def test_typing_a_user_shows_recommendations_and_the_address_can_be_shared(open_page, address):
    page = open_page(address)
    page.get_by_label("Recommend to a user").fill("user-3")
    page.get_by_role("button", name="Recommend").click()
    playwright.expect(page.get_by_role("heading", name="For user user-3")).to_be_visible()
    playwright.expect(page).to_have_title("user user-3 · tableless")
    playwright.expect(rows(page, "recommendations")).to_have_count(10)
    shared = open_page(page.url)
    playwright.expect(rows(shared, "recommendations")).to_have_count(10)
    assert rows(shared, "recommendations").all_text_contents() == rows(page, "recommendations").all_text_contents()


def test_choosing_an_item_shows_its_neighbours_and_marks_them_on_the_map(open_page, address):
    page = open_page(f"{address}#user=user-3")
    first = rows(page, "recommendations").first
    name = first.locator(".name").text_content()
    first.click()
    playwright.expect(page.get_by_role("heading", name=f"Near {name}")).to_be_visible()
    playwright.expect(first).to_have_attribute("aria-current", "true")
    wait_for_color(page, NEIGHBOR)
    wait_for_color(page, CHOSEN)
    page.get_by_role("link", name="tableless").click()
    playwright.expect(page.get_by_role("heading", name="Neighbours", exact=True)).to_be_visible()


def test_a_link_keeps_the_user_that_was_chosen_after_it_was_made(open_page, address):
    page = open_page(f"{address}#user=user-3&item=item-7")
    playwright.expect(rows(page, "neighbors")).to_have_count(10)
    page.get_by_label("Recommend to a user").fill("user-4")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("heading", name="For user user-4")).to_be_visible()
    rows(page, "neighbors").first.click()
    wait_for_view(page, "user=user-4&item=")


def test_a_point_of_the_map_can_be_touched(open_page, address):
    page = open_page(f"{address}#item=item-7", width=390, height=844, has_touch=True)
    left, top = wait_for_color(page, NEIGHBOR)
    page.locator("canvas").tap(position={"x": left, "y": top})
    page.wait_for_function("() => location.hash !== '#item=item-7'")
    playwright.expect(page.locator("#map-caption")).to_contain_text("item-")


def test_everything_can_be_done_with_the_keyboard(open_page, address):
    page = open_page(address)
    playwright.expect(rows(page, "neighbors")).to_have_count(10)
    press = page.keyboard.press
    press("Tab")
    playwright.expect(page.get_by_role("link", name="Skip to the answers")).to_be_focused()
    for _ in range(3):
        press("Tab")
    playwright.expect(page.get_by_label("Recommend to a user")).to_be_focused()
    page.keyboard.type("user-3")
    press("Enter")
    playwright.expect(rows(page, "recommendations")).to_have_count(10)
    press("Tab")
    press("Tab")
    field = page.get_by_role("combobox", name="Find an item")
    playwright.expect(field).to_be_focused()
    page.keyboard.type("story of item-1")
    playwright.expect(page.get_by_role("option").first).to_contain_text("The story of item-1")
    press("ArrowDown")
    playwright.expect(field).to_have_attribute("aria-activedescendant", "item-option-0")
    press("Enter")
    wait_for_view(page, "item=item-1")
    playwright.expect(field).to_have_attribute("aria-expanded", "false")
    playwright.expect(page.get_by_role("heading", name="Near The story of item-1")).to_be_visible()
    press("Tab")
    playwright.expect(rows(page, "recommendations").first).to_be_focused()
    chosen = page.url
    wait_for_color(page, CHOSEN)
    page.locator("canvas").focus()
    for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "ArrowRight"):
        press(key)
    press("Enter")
    page.wait_for_function("before => location.href !== before", arg=chosen)


def test_a_new_item_can_be_asked_for_by_its_id(open_page, address):
    page = open_page(address)
    page.get_by_label("Find an item").fill("never seen before")
    playwright.expect(page.get_by_role("option")).to_have_text(["never seen before as an id"])
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("heading", name="Near never seen before")).to_be_visible()
    playwright.expect(rows(page, "neighbors")).to_have_count(10)
    playwright.expect(page.locator("#map-caption")).to_have_text("The chosen item is not on the map.")


def test_what_is_typed_while_the_page_loads_is_kept(open_page, address):
    page = open_page("about:blank")
    held = []
    page.route("**/facts?*", lambda route: held.append(route), times=1)  # everything else waits for the facts
    page.goto(address)
    page.get_by_label("Recommend to a user").fill("user-3")
    page.get_by_label("Find an item").fill("story of")
    held[0].continue_()
    playwright.expect(rows(page, "neighbors")).to_have_count(10)
    playwright.expect(page.get_by_label("Find an item")).to_have_value("story of")
    playwright.expect(page.get_by_label("Recommend to a user")).to_have_value("user-3")


@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_nothing_is_wider_than_the_screen_and_targets_fit_a_finger(open_page, address, titles, width):
    long = item_called(LONG, titles)
    page = open_page(address, width=width, height=844, has_touch=True, is_mobile=True)
    playwright.expect(rows(page, "neighbors")).to_have_count(10)
    expect_no_sideways_scroll(page)
    page.goto(f"{address}#user=user-3&item={long}&count=100")
    playwright.expect(page.get_by_role("heading", name="Near A title without end")).to_be_visible()
    playwright.expect(rows(page, "neighbors")).to_have_count(100)
    expect_no_sideways_scroll(page)
    small = page.evaluate(
        """[...document.querySelectorAll("a, button, input")].filter(element => element.checkVisibility())
            .filter(element => element.getBoundingClientRect().height < 44).map(element => element.outerHTML)"""
    )
    assert small == []


def test_a_title_that_looks_like_a_script_is_shown_as_text(open_page, address, titles):
    awkward = item_called(SCRIPT, titles)
    page = open_page(address)
    page.get_by_label("Find an item").fill("onerror")
    playwright.expect(page.get_by_role("option").first).to_contain_text(SCRIPT)
    page.keyboard.press("Enter")
    wait_for_view(page, f"item={awkward}")
    playwright.expect(page.locator("#neighbors-heading")).to_have_text(f"Near {SCRIPT}")
    assert page.locator("img").count() == 0
    assert page.title() == f"{SCRIPT} · tableless"


def test_large_ids_are_not_rounded(open_page, address):
    page = open_page("about:blank")
    answer = '{"user": 1, "items": [{"item": 9007199254740993, "score": 1.5, "title": null}]}'
    page.route("**/recommend?*", lambda route: route.fulfill(body=answer, content_type="application/json"))
    page.goto(f"{address}#user=1")
    playwright.expect(rows(page, "recommendations").locator(".name")).to_have_text(["9007199254740993"])


def test_an_unknown_id_of_a_closed_scheme_is_explained_in_one_sentence(open_page, serve):
    page = open_page(f"{serve('closed')}#user=987654321")
    playwright.expect(page.locator("#recommendations .problem")).to_have_text(
        "There is no user 987654321 in the data that this model was trained on, and its scheme (full) knows no others."
    )


def test_a_busy_server_can_be_asked_again(open_page, address):
    page = open_page("about:blank")
    busy = {"status": 503, "body": '{"detail": "More is being asked than can be answered."}'}
    page.route("**/recommend?*", lambda route: route.fulfill(**busy), times=1)
    page.goto(f"{address}#user=user-3")
    problem = page.locator("#recommendations .problem")
    playwright.expect(problem).to_have_text("More is being asked than can be answered.")
    page.get_by_role("button", name="Try again").click()
    playwright.expect(rows(page, "recommendations")).to_have_count(10)
    playwright.expect(problem).to_have_count(0)


def test_a_token_is_asked_for_and_kept_for_the_tab(open_page, serve):
    page = open_page(f"{serve('open', token='open sesame')}#user=user-3")
    sentence = page.locator("#token-sentence")
    playwright.expect(sentence).to_have_text("This server asks for a token.")
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    playwright.expect(sentence).to_have_text("The server does not accept this token.")
    page.get_by_label("Token").fill("open sesame")
    page.keyboard.press("Enter")
    playwright.expect(rows(page, "recommendations")).to_have_count(10)
    page.reload()
    playwright.expect(rows(page, "recommendations")).to_have_count(10)


def test_facts_are_asked_for_every_two_seconds_while_the_page_is_seen(open_page, address):
    page = open_page("about:blank")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/facts" in request.url else None)
    page.clock.install()
    page.goto(address)
    playwright.expect(page.locator("#map-caption")).to_contain_text("most popular items")
    with page.expect_response("**/facts?*"):
        page.clock.run_for(2000)
    see = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    see += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(see, True)
    before = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) == before
    with page.expect_response("**/facts?*"):
        page.evaluate(see, False)


def test_the_users_that_the_page_offers_are_those_of_the_run(open_page, address, runs):
    users = TrainedModel.from_pretrained(runs / "open").facts["example_users"]
    page = open_page(address)
    offered = page.locator("#recommendations .suggestions a")
    playwright.expect(offered).to_have_text([*(f"User {user}" for user in users), "Someone new"])
    offered.first.click()
    playwright.expect(rows(page, "recommendations")).to_have_count(10)
    playwright.expect(page.locator("#recommendations .new")).to_have_count(0)


def test_an_id_that_is_not_known_is_marked_as_new(open_page, address):
    page = open_page(f"{address}#item=never-seen")
    playwright.expect(page.locator("#neighbors .new")).to_contain_text("New: this item")
    page.goto(f"{address}#item=item-7")
    playwright.expect(rows(page, "neighbors")).to_have_count(10)
    playwright.expect(page.locator("#neighbors .new")).to_have_count(0)

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
from pathlib import Path
from tests.floors import Floors

def pytest_configure(config):
    config.addinivalue_line("markers", "real_data: needs data")
    config.pluginmanager.register(Floors(Path({folder!r})))
"""
ORDINARY = "def test_ordinary(): pass\n"
FLOORS = """
import pytest

@pytest.mark.real_data
@pytest.mark.parametrize("scheme", ["full", "dhe"])
def test_floor(scheme): pass
"""
SKIPPED = FLOORS.replace("def test_floor(scheme): pass", "def test_floor(scheme): pytest.skip('no reason')")
MARKED_AS_SKIPPED = FLOORS.replace("@pytest.mark.real", "@pytest.mark.skipif(True, reason='none')\n@pytest.mark.real")


def run(folder, tests, *options, data=True):
    """A run of pytest on tests of its own: whether it passed, and what it printed."""
    (folder / "data").mkdir() if data else None
    (folder / "conftest.py").write_text(CONFTEST.format(folder=str(folder / "data")))
    (folder / "test_it.py").write_text(ORDINARY + tests)
    # Without the plugins of other tests, which take seconds to import: here in up to three processes.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "no:cacheprovider", "-p", "xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-c", os.devnull, "--rootdir", ".", *options, "."],
        capture_output=True, text=True, cwd=folder, env=environment,
    )  # fmt: skip
    return done.returncode == 0, done.stdout


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=str)
def test_a_run_with_all_floors_passes(tmp_path, options):
    passed, said = run(tmp_path, FLOORS, *options)
    assert passed, said
    assert "accuracy floors: 2 of 2 were tested" in said


@pytest.mark.parametrize(
    ("tests", "options", "missed"),
    [
        (SKIPPED, [], 2),
        (SKIPPED, ["-n", "2"], 2),
        (MARKED_AS_SKIPPED, [], 2),
        (FLOORS, ["-m", "not real_data"], 2),
        (FLOORS, ["-n", "2", "-k", "not dhe"], 1),
        ("", [], 1),
    ],
    ids=["skipped", "skipped in workers", "marked", "left out by marker", "left out by name in workers", "none there"],
)
def test_with_data_a_floor_that_was_not_tested_fails_the_run(tmp_path, tests, options, missed):
    passed, said = run(tmp_path, tests, *options)
    assert not passed, said
    assert said.count("not tested: ") == missed
    assert " failed" not in said


def test_without_data_floors_may_be_skipped(tmp_path):
    passed, said = run(tmp_path, SKIPPED, data=False)
    assert passed, said
    assert "accuracy floors: 0 of 2 were tested" in said


def test_ci_asks_for_the_floors():
    assert "TABLELESS_REQUIRE_FLOORS=1 make" in (ROOT / ".ci" / "run").read_text()
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    assert 'os.environ.get("TABLELESS_REQUIRE_FLOORS")' in conftest

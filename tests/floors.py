"""The accuracy floors (tests marked `real_data`), counted: skipped, they would let any loss of accuracy pass."""

import pytest


class Floors:
    """A plugin of pytest: the run fails if the folder of the data is there and a floor was not tested.

    With pytest-xdist each worker tells the main process which floors it found; those that ran it sees itself.
    """

    def __init__(self, folder):
        self.folder = folder
        self.found, self.ran = set(), set()

    @pytest.hookimpl(tryfirst=True)  # before -k and -m take any away
    def pytest_collection_modifyitems(self, items):
        self.found |= {item.nodeid for item in items if item.get_closest_marker("real_data")}

    def pytest_runtest_logreport(self, report):
        if "real_data" in report.keywords and report.when == "call" and not report.skipped:
            self.ran.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.found |= set(getattr(node, "workeroutput", {}).get("floors", ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["floors"] = sorted(self.found)
        elif self.missed():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        there = "is" if self.folder.is_dir() else "is not"
        terminalreporter.write_line(
            f"accuracy floors: {len(self.ran)} of {len(self.found)} were tested; their data {there} in {self.folder}"
        )
        for floor in self.missed():
            terminalreporter.write_line(f"not tested: {floor}", red=True)

    def missed(self):
        if not self.folder.is_dir():
            return []
        return sorted(self.found - self.ran) if self.found else ["all of them: no test is marked `real_data`"]

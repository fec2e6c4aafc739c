import os

import pytest
import torch

from tableless.embedding import distillation

from .data.real_data import REAL_DATA
from .floors import Floors


def pytest_configure(config):
    if os.environ.get("TABLELESS_REQUIRE_FLOORS"):
        config.pluginmanager.register(Floors(REAL_DATA))


@pytest.fixture
def short_fits(monkeypatch):
    """Networks see each row of a table 20 times and not 400 times. For tests that do not ask how well they learn it."""
    monkeypatch.setattr(distillation, "_MOST_VISITS", 20)
    monkeypatch.setattr(distillation, "_FEWEST_VISITS", 20)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tests run side by side; each with its own pool of threads would only wait for the other."""
    torch.set_num_threads(1)

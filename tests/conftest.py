import os

import pytest
import torch

from .data.real_data import REAL_DATA
from .floors import Floors


def pytest_configure(config):
    if os.environ.get("TABLELESS_REQUIRE_FLOORS"):
        config.pluginmanager.register(Floors(REAL_DATA))


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tests run side by side; each with its own pool of threads would only wait for the other."""
    torch.set_num_threads(1)

import functools
import os
from contextlib import contextmanager, suppress

import pytest
import torch

from tableless.embedding import distillation

from .data.real_data import REAL_DATA
from .floors import Floors


def pytest_configure(config):
    if os.environ.get("TABLELESS_REQUIRE_FLOORS"):
        config.pluginmanager.register(Floors(REAL_DATA))


@contextmanager
def few_visits():
    """Networks see each row of a table 20 times and not 400 times. For runs that nobody asks how well they learned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distillation, "_MOST_VISITS", 20)
        patch.setattr(distillation, "_FEWEST_VISITS", 20)
        yield


@pytest.fixture
def short_fits():
    """The same for one test; `few_visits` is for what several tests share."""
    with few_visits():
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tests run side by side; each with its own pool of threads would only wait for the other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _one_list_of_operators():
    """For each file torch lists all operators of ONNX, a quarter of the time of an export. Here it does so once."""
    export = torch.onnx.export

    def export_by_one_list(*arguments, **options):
        # Late, since it imports onnxscript. If a later torch has it elsewhere, exports are only slower.
        with suppress(ImportError):
            from torch.onnx._internal.exporter._registration import ONNXRegistry

            if not hasattr(ONNXRegistry.from_torchlib, "cache_info"):
                patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))
        return export(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", export_by_one_list)
        yield

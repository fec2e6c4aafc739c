import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tests run side by side; each with its own pool of threads would only wait for the other."""
    torch.set_num_threads(1)

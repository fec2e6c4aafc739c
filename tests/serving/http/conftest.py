import pytest
from fastapi.testclient import TestClient

from .tiny_run import app_for, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "runs" / "first")


@pytest.fixture
def client(run):
    with TestClient(app_for(run)) as client:
        yield client

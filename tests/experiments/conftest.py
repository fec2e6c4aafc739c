"""What every test of experiments needs."""

import pytest
from experiments import (
    running,
    writing,
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Teachers, results and pictures of tests stay out of the project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(writing, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr("tableless.embedding.distillation._MOST_VISITS", 20)  # fits need not be good here

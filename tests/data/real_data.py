"""Where the real datasets are; tests that need them are skipped where they are not."""

import os
from pathlib import Path

import pytest

REAL_DATA = Path(os.environ.get("TABLELESS_DATA") or Path(__file__).parents[3] / "shared" / "data")


def needs_real_data(test):
    """Mark a test that reads a real dataset."""
    missing = pytest.mark.skipif(not REAL_DATA.is_dir(), reason="set TABLELESS_DATA to the folder of the datasets")
    return pytest.mark.real_data(missing(test))

import os
import sys
from dataclasses import replace

import numpy as np
import pytest

from tableless.data.interactions import DataError, Interactions
from tests.data.tiny import assert_same, build, in_order


class TestStorage:
    @pytest.mark.parametrize("mmap", [True, False])
    @pytest.mark.parametrize("timed", [True, False])
    def test_what_is_saved_is_what_is_loaded(self, tmp_path, mmap, timed):
        whole = in_order([[0, 1], [1, 0, 2]]) if timed else replace(build([[0, 1], [1, 0, 2]]), item_names=None)
        whole.save(tmp_path / "saved")
        loaded = Interactions.load(tmp_path / "saved", mmap=mmap)
        assert_same(loaded, whole)
        assert isinstance(loaded.items, np.memmap) == mmap
        assert not isinstance(loaded.in_memory().items, np.memmap)
        assert_same(loaded.in_memory(), whole)

    def test_saving_again_replaces(self, tmp_path):
        in_order([[0, 1], [1, 0, 2]]).save(tmp_path / "saved")
        build([[0, 1], [1, 0]]).save(tmp_path / "saved")
        assert Interactions.load(tmp_path / "saved").times is None
        assert os.listdir(tmp_path) == ["saved"]

    def test_writing_to_a_loaded_array_does_not_change_the_file(self, tmp_path):
        in_order([[0, 1], [1, 0]]).save(tmp_path / "saved")
        Interactions.load(tmp_path / "saved").items[0] = 5
        assert Interactions.load(tmp_path / "saved").items[0] == 0

    def test_another_directory_is_refused(self, tmp_path):
        with pytest.raises(DataError, match="no prepared interactions"):
            Interactions.load(tmp_path)

    def test_another_format_is_refused(self, tmp_path):
        in_order([[0, 1], [1, 0]]).save(tmp_path / "saved")
        (tmp_path / "saved" / "interactions.json").write_text('{"format": 99}')
        with pytest.raises(DataError, match="format 99"):
            Interactions.load(tmp_path / "saved")

    def test_names_without_polars_say_what_to_install(self, tmp_path, monkeypatch):
        in_order([[0, 1], [1, 0]]).save(tmp_path / "saved")
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(ImportError, match=r"pip install 'tableless\[data\]'"):
            Interactions.load(tmp_path / "saved")


def test_each_action_knows_its_user():
    rows = in_order([[0, 1], [1], [1, 0, 2]]).user_rows()
    assert rows.tolist() == [0, 0, 1, 2, 2, 2]
    assert rows.dtype == np.int32

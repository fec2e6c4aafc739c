import os
import time

import pytest

from tableless.files.whole import staged


def test_a_failure_leaves_nothing_behind(tmp_path):
    def fail():
        with staged(tmp_path / "new") as staging:
            (staging / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert os.listdir(tmp_path) == []


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path):
    for name, age in (("old", 2 * 3600), ("new", 0)):
        left = tmp_path / f".{name}.partial"
        left.mkdir()
        (left / "items.npy").write_text("half")
        for path in (left / "items.npy", left):
            os.utime(path, (time.time() - age,) * 2)
    with staged(tmp_path / "whole"):
        pass
    assert sorted(os.listdir(tmp_path)) == [".new.partial", "whole"]

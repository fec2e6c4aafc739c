import pytest

from tableless.data.loading import DataConfig, recorded_data


@pytest.mark.parametrize("split", ["magic", "column:", "columns", "", "Column"])
def test_another_split_is_refused(split):
    with pytest.raises(ValueError, match=r"it must be leave-one-out, global-time, column .* or column:NAME"):
        DataConfig("x.csv", split=split)


@pytest.mark.parametrize("split", ["global-time", "column", "column:fold"])
def test_a_test_file_is_the_split(split):
    with pytest.raises(ValueError, match=f"test.csv is the split; split {split} cannot"):
        DataConfig("x.csv", split=split, test="test.csv")


@pytest.mark.parametrize("given", [{"split": "column"}, {"test": "test.csv"}])
def test_a_given_split_has_no_core(given):
    with pytest.raises(ValueError, match="core 5 cannot be used with a given split"):
        DataConfig("x.csv", core=5, **given)


def test_what_was_recorded_before_there_were_test_files_is_the_same():
    before = {"data": "x.csv", "data_dir": None, "user_col": None, "item_col": None, "time_col": None}
    before |= {"core": 0, "split": "leave-one-out", "split_seed": 0}
    assert recorded_data({"data": before}) == DataConfig("x.csv")
    assert DataConfig("x.csv").settings() == before


def test_a_test_file_is_recorded():
    config = DataConfig("x.csv", test="test.csv")
    assert recorded_data({"data": config.settings()}) == config
    with pytest.raises(ValueError, match="test is 7"):
        recorded_data({"data": {"data": "x.csv", "test": 7}})

"""Splits that came with the data: a column that says train or test, or a file of test actions."""

import numpy as np
import polars as pl
import pytest

from tableless.data import interactions as user_blocks
from tableless.data import prepare as preparation
from tableless.data.config import DataConfig
from tableless.data.interactions import DataError, Part
from tableless.data.loading import load_parts, load_split
from tableless.data.splits import split_given
from tableless.embedding.ids import to_ids
from tests.data.tiny import assert_same, build

# Ids that are no row numbers, in no order. User 5 and item 11 are only in the test part; (70, 900) is in both parts;
# (70, 31) is twice in training, (300, 900) twice in the test.
TRAIN = [(300, 31), (70, 31), (70, 900), (70, 31), (300, -4), (70, 8), (300, 8), (41, 900), (41, 8)]
TEST = [(70, -4), (5, 8), (300, 900), (70, 900), (300, 11), (300, 900), (5, 31)]
HELD_OUT = {(70, -4), (5, 8), (5, 31), (300, 900), (300, 11)}
KINDS = {"integer": lambda number: number, "string": lambda number: f"<{number}>"}


def frame(rows, *, kind="integer", names=("user", "item"), **columns):
    raw = KINDS[kind]
    users, items = [raw(user) for user, _ in rows], [raw(item) for _, item in rows]
    return pl.DataFrame({names[0]: users, names[1]: items, **columns})


def write(table, path):
    table.write_parquet(path) if path.suffix == ".parquet" else table.write_csv(path)
    return str(path)


def in_one_file(path, *, kind="integer", column="split", words=("train", "test")):
    """Test actions first, so that the order of the rows cannot be the split."""
    parts = [words[1]] * len(TEST) + [words[0]] * len(TRAIN)
    return write(frame(TEST + TRAIN, kind=kind, **{column: parts}), path)


def in_two_files(folder, *, kind="integer", suffixes=(".parquet", ".parquet")):
    data = write(frame(TRAIN, kind=kind), folder / f"data{suffixes[0]}")
    return data, write(frame(TEST, kind=kind, names=("uid", "asin")), folder / f"given{suffixes[1]}")


def pairs(split, part):
    """What a part holds, in raw ids (integers)."""
    train = split.train
    rows = {
        "train": (train.user_rows(), train.items),
        "validation": (split.validation_users, split.validation_items),
        "test": (split.test_users, split.test_items),
    }
    users, items = rows[part]
    if train.item_kind == "string":
        named = [int(name.strip("<>")) for name in train.item_names.gather(items)]
        raw = [300, 70, 41, 5]
        user_of = dict(zip(to_ids([f"<{user}>" for user in raw]).tolist(), raw, strict=True))
        return [(user_of[int(user)], item) for user, item in zip(train.user_ids[users], named, strict=True)]
    return list(zip(train.user_ids[users].tolist(), train.item_ids[items].tolist(), strict=True))


def assert_same_split(one, other):
    assert_same(one.train, other.train)
    for name in ("validation_users", "validation_items", "test_users", "test_items"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == np.int32
    assert (one.num_known_users, one.num_known_items) == (other.num_known_users, other.num_known_items)


def assert_as_given(split):
    assert sorted(pairs(split, "test")) == sorted(HELD_OUT)
    assert len(set(pairs(split, "train") + pairs(split, "validation"))) == len(set(TRAIN))
    assert sorted(pairs(split, "train") + pairs(split, "validation")) == sorted(set(TRAIN))
    assert (split.num_known_users, split.num_known_items) == (3, 4)
    assert (split.train.num_users, split.train.num_items) == (4, 5)
    for ids, known in ((split.train.user_ids, 3), (split.train.item_ids, 4)):
        assert (np.diff(ids[:known]) > 0).all()
    for users in (split.test_users, split.validation_users):
        assert (np.diff(users) >= 0).all()
    # Users 300 and 70 have three training actions, user 41 two.
    assert sorted(user for user, _ in pairs(split, "validation")) == [70, 300]
    assert split.train.times is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
class TestWhatIsRead:
    def test_a_column_says_the_part(self, tmp_path, kind, suffix):
        file = in_one_file(tmp_path / f"rows{suffix}", kind=kind)
        split = load_split(DataConfig(file, split="column"))
        assert_as_given(split)
        assert split.train.user_kind == split.train.item_kind == kind

    def test_a_second_file_has_the_test_actions(self, tmp_path, kind, suffix):
        for other in (".parquet", ".csv"):
            data, test = in_two_files(tmp_path, kind=kind, suffixes=(suffix, other))
            split = load_split(DataConfig(data, test=test))
            assert_as_given(split)
            by_column = load_split(DataConfig(in_one_file(tmp_path / "rows.parquet", kind=kind), split="column"))
            assert_same_split(split, by_column)

    def test_the_memory_that_is_allowed_does_not_matter(self, tmp_path, kind, suffix, monkeypatch):
        data, test = in_two_files(tmp_path, kind=kind, suffixes=(suffix, suffix))
        at_once = load_split(DataConfig(data, test=test))
        monkeypatch.setitem(preparation.prepare.__kwdefaults__, "rows_in_memory", 3)
        monkeypatch.setattr(user_blocks, "_BLOCK_ROWS", 2)
        assert_same_split(at_once, load_split(DataConfig(data, test=test)))


class TestColumn:
    def test_it_may_have_another_name_and_its_words_any_case(self, tmp_path):
        file = in_one_file(tmp_path / "rows.csv", column="fold", words=("TRAIN", "Test"))
        assert_as_given(load_split(DataConfig(file, split="column:fold")))

    @pytest.mark.parametrize("word", ["validation", "valid", "val", "dev", "Validation"])
    def test_a_validation_part_is_taken_as_it_is(self, tmp_path, word):
        rows = [(300, 31), (300, 8), (300, -4), (70, 8), (70, 31), (300, 900), (300, 8), (70, 900), (70, 31), (5, 77)]
        parts = ["train"] * 5 + [word] * 2 + ["test"] * 3
        file = write(frame(rows, split=parts), tmp_path / "rows.parquet")
        split = load_split(DataConfig(file, split="column"))
        assert sorted(pairs(split, "train")) == sorted(rows[:5])
        assert pairs(split, "validation") == [(300, 900)]  # (300, 8) is in training
        assert pairs(split, "test") == [(70, 900), (5, 77)]  # (70, 31) is in training
        # Item 900 is in the validation part alone, and so new: known are only those in training.
        assert split.train.item_ids.tolist() == [-4, 8, 31, 77, 900]
        assert (split.num_known_users, split.num_known_items) == (2, 3)

    @pytest.mark.parametrize("suffix", [".parquet", ".csv"])
    def test_another_word_is_refused_with_its_place_and_those_allowed(self, tmp_path, suffix):
        table = frame(TRAIN[:3], split=["train", "holdout", "test"])
        file = write(table, tmp_path / f"rows{suffix}")
        place = "row 2" if suffix == ".parquet" else "line 3"
        with pytest.raises(DataError, match=rf"{place}: 'holdout' \(column 'split'\) must be one of train, validation"):
            load_split(DataConfig(file, split="column"))

    def test_a_missing_column_is_refused_with_those_there_are(self, tmp_path):
        file = in_one_file(tmp_path / "rows.csv", column="fold")
        with pytest.raises(DataError, match="has no column 'split'; its columns are user, item, fold"):
            load_split(DataConfig(file, split="column"))

    def test_a_column_that_is_something_else_already_is_refused(self, tmp_path):
        with pytest.raises(DataError, match="'item' cannot say train or test"):
            load_split(DataConfig(in_one_file(tmp_path / "rows.csv"), item_col="item", split="column:item"))

    def test_a_row_without_a_part_is_refused(self, tmp_path):
        file = write(frame(TRAIN[:3], split=["train", None, "test"]), tmp_path / "rows.parquet")
        with pytest.raises(DataError, match=r"row 2: the part \(column 'split'\) is missing"):
            load_split(DataConfig(file, split="column"))

    @pytest.mark.parametrize(("words", "missing"), [(("train", "train"), "test"), (("test", "test"), "training")])
    def test_a_part_without_actions_is_refused(self, tmp_path, words, missing):
        file = in_one_file(tmp_path / "rows.csv", words=words)
        with pytest.raises(DataError, match=f"no actions for {missing}"):
            load_split(DataConfig(file, split="column"))


class TestTwoFiles:
    def test_ids_of_another_kind_are_refused(self, tmp_path):
        integers = write(frame(TRAIN), tmp_path / "integers.parquet")
        for suffix in (".parquet", ".csv"):
            strings = write(frame(TEST, kind="string"), tmp_path / f"strings{suffix}")
            for data, test in ((integers, strings), (strings, integers)):
                with pytest.raises(DataError, match=r"integers\.parquet, row 1 .* user ids are integers here, and str"):
                    load_split(DataConfig(data, test=test))

    def test_text_that_turns_out_to_hold_strings_makes_strings_of_both(self, tmp_path):
        data = write(frame(TRAIN), tmp_path / "data.csv")
        given = frame([*TEST, (70, 31)]).with_columns(pl.col("item").cast(pl.String).replace("11", "eleven"))
        split = load_split(DataConfig(data, test=write(given, tmp_path / "given.csv")))
        assert split.train.item_kind == "string"
        assert split.train.item_names.to_list()[split.num_known_items :] == ["eleven"]
        assert len(split.test_users) == len(HELD_OUT)

    def test_the_cache_tells_test_files_and_columns_apart(self, tmp_path):
        data, test = in_two_files(tmp_path)
        fewer = write(frame(TEST[:2]), tmp_path / "fewer.csv")
        both = write(frame(TRAIN, split=["test", *["train"] * 8], fold=["train"] * 8 + ["test"]), tmp_path / "both.csv")
        cache = tmp_path / "cache"
        configs = [
            DataConfig(data),
            DataConfig(data, test=test),
            DataConfig(data, test=fewer),
            DataConfig(both),
            DataConfig(both, split="column"),
            DataConfig(both, split="column:fold"),
        ]
        for _ in range(2):
            for config in configs:
                assert_same_split(load_split(config, cache_dir=cache), load_split(config))
        assert len(list(cache.iterdir())) == len(configs)

    def test_how_many_test_pairs_are_in_training_is_told(self, tmp_path):
        data, test = in_two_files(tmp_path)
        told = []
        load_split(DataConfig(data, test=test), report=lambda *news: told.append(news[0]))
        assert told[-1].startswith("1 pairs of user and item are in an earlier part")
        assert f"{test}: user = uid, item = asin, time = none" in told

    def test_the_world_has_no_given_split(self, tmp_path):
        for config in (DataConfig("world", split="column"), DataConfig("world", test=in_two_files(tmp_path)[1])):
            with pytest.raises(DataError, match="world has no given split"):
                load_split(config)

    def test_a_column_and_a_file_at_once_are_refused(self, tmp_path):
        data, test = in_two_files(tmp_path)
        with pytest.raises(DataError, match="either"):
            load_parts(data, test=test, part_col="split")


class TestDrawnValidation:
    # Ten training actions and three test actions each; users of two actions, and of none, in between.
    whole = build(
        [list(range(13)), [3, 4, 5], [7]] * 40,
        [[Part.TRAIN] * 10 + [Part.TEST] * 3, [Part.TRAIN] * 2 + [Part.TEST], [Part.TEST]] * 40,
    )

    def test_one_training_action_of_each_user_with_at_least_three(self):
        split = split_given(self.whole)
        users = split.train.user_ids[split.validation_users] // 10
        assert users.tolist() == list(range(0, 120, 3))
        for row in split.validation_users:
            own = split.train.items[split.train.starts[row] : split.train.starts[row + 1]].tolist()
            own += split.validation_items[split.validation_users == row].tolist()
            assert sorted(int(split.train.item_ids[item]) // 100 for item in own) == list(range(10))

    def test_the_seed_decides_and_every_action_can_be_drawn(self):
        first, again, other = (split_given(self.whole, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.validation_items, again.validation_items)
        assert (first.validation_items != other.validation_items).any()
        drawn = {int(item) for seed in range(20) for item in split_given(self.whole, seed=seed).validation_items}
        assert len(drawn) == 10

    def test_an_item_whose_only_training_action_is_drawn_stays_known(self):
        # Every user has three items that nobody else has, so that each draw takes an item out of training.
        actions = [[3 * user, 3 * user + 1, 3 * user + 2, 90] for user in range(30)]
        split = split_given(build(actions, [[0, 0, 0, 2]] * 30))
        assert split.num_known_items == 90
        assert len(np.unique(split.train.items)) == 60

    def test_the_size_of_blocks_does_not_matter(self, monkeypatch):
        at_once = split_given(self.whole, seed=3)
        monkeypatch.setattr(user_blocks, "_BLOCK_ROWS", 7)
        assert_same_split(at_once, split_given(self.whole, seed=3))

"""From a file to a table of numbers, whatever the format; and from the table to parts and examples."""

import numpy as np
import polars as pl
import pytest
import torch

from tableless import to_ids
from tableless.data.clicks import columns as column_values
from tableless.data.clicks.columns import MISSING, parse_columns
from tableless.data.clicks.reading import ClickConfig, read_clicks
from tableless.data.clicks.split import split_clicks, whole_table
from tableless.data.clicks.table import Vocabulary, to_inputs
from tableless.data.config import RowRules
from tableless.data.interactions import DataError

from .tiny_clicks import COLUMNS, tiny_clicks


@pytest.fixture
def frame():
    return tiny_clicks(300)


def write(frame, path):
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    return str(path)


def config_for(path, columns=COLUMNS, **arguments):
    return ClickConfig(path, parse_columns(columns), **{"label": "clicked", **arguments})


@pytest.mark.parametrize("name", ["clicks.csv", "clicks.parquet"])
def test_every_format_gives_the_same_inputs(frame, tmp_path, name):
    said = []
    table = read_clicks(config_for(write(frame, tmp_path / name)), report=lambda text, done, total: said.append(text))
    rows = np.array([2, 0, 299, 13])
    inputs = table.inputs(rows)
    assert inputs["user"].tolist() == frame["user"][rows.tolist()].to_list()
    assert inputs["item"].tolist() == to_ids(frame["item"][rows.tolist()].to_list()).tolist()
    assert inputs["device"].tolist() == to_ids(frame["device"].fill_null("")[rows.tolist()].to_list()).tolist()
    assert inputs["price"].isnan().tolist() == [False, True, True, True]
    lists = [text.split("|") if text else [] for text in frame["tags"][rows.tolist()]]
    for own, wanted in zip(inputs["tags"].tolist(), lists, strict=True):
        assert [id for id in own if id != MISSING] == to_ids(wanted).tolist()
    assert table.labels.tolist() == frame["clicked"].to_list()
    assert "`user` (integer), `item` (string)" in said[-1]
    assert "`tags` (string, lists by '|'), `price` (number); label `clicked`" in said[-1]
    assert all(torch.equal(own, to_inputs(frame[rows.tolist()], table.columns)[name]) for name, own in inputs.items()
               if name != "price")  # fmt: skip


def test_a_rating_becomes_a_label_by_a_threshold(frame, tmp_path):
    rated = frame.with_columns(clicked=pl.Series([1 + row % 5 for row in range(len(frame))]))
    path = write(rated, tmp_path / "ratings.parquet")
    table = read_clicks(config_for(path, rules=RowRules(min_rating=4)))
    assert table.labels[:5].tolist() == [0, 0, 0, 1, 1]
    with pytest.raises(DataError, match=r"row 2: the label 2 .* is neither 0 nor 1; .* --min-rating 4"):
        read_clicks(config_for(path))


def test_rows_without_a_label_are_refused_or_dropped(frame, tmp_path):
    labels = frame["clicked"].to_list()
    path = write(frame.with_columns(clicked=pl.Series([*labels[:7], None, *labels[8:]])), tmp_path / "clicks.parquet")
    with pytest.raises(DataError, match=r"row 8: the label \(column 'clicked'\) is missing"):
        read_clicks(config_for(path))
    table = read_clicks(config_for(path, rules=RowRules(drop_missing=True)))
    assert table.num_rows == 299
    assert table.inputs(np.array([7]))["user"].tolist() == [frame["user"][8]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": "user,clicked"}, "the label 'clicked' cannot be a column as well"),
        ({"item_col": "item"}, "with a label no negatives are drawn"),
        ({"label": None, "item_columns": ("author",)}, "'author' is not among the columns"),
        ({"label": None, "rules": RowRules(min_rating=4)}, "min_rating turns ratings into labels"),
    ],
)
def test_contradictions_are_refused_before_a_file_is_read(arguments, message):
    with pytest.raises(ValueError, match=message):
        config_for("nowhere.csv", **arguments)


def test_columns_that_are_not_there_are_named(frame, tmp_path):
    with pytest.raises(DataError, match="has no column 'os'; its columns are user, item"):
        read_clicks(config_for(write(frame, tmp_path / "clicks.csv"), "user,os"))


def test_settings_build_the_same_config_again(tmp_path):
    config = config_for("clicks.csv", label=None, item_columns=("tags",), rules=RowRules(drop_missing=True))
    assert ClickConfig.from_settings(config.settings()) == config
    with pytest.raises(ValueError, match="does not say which data"):
        ClickConfig.from_settings({"columns": []})


def test_numbers_of_ids_stay_the_same_when_more_blocks_come():
    vocabulary = Vocabulary()
    first, second = np.array([50, -7, 50, 2**62]), np.array([3, -7, 2**62, -(2**63)])
    codes = np.concatenate([vocabulary.codes(first), vocabulary.codes(second)])
    assert vocabulary.ids[codes].tolist() == [*first, *second]
    assert len(vocabulary.ids) == 5


def test_a_file_of_many_blocks_is_read_as_one(frame, tmp_path, monkeypatch):
    path = write(frame, tmp_path / "clicks.parquet")
    whole = read_clicks(config_for(path))
    monkeypatch.setattr("tableless.data.reading.parquet._BATCH_ROWS", 32)
    blocks = read_clicks(config_for(path))
    rows = np.arange(len(frame))
    for name, own in whole.inputs(rows).items():
        assert torch.equal(own.nan_to_num(-1.0), blocks.inputs(rows)[name].nan_to_num(-1.0)), name
    assert column_values.MISSING in whole.inputs(rows)["device"].tolist()


@pytest.mark.parametrize("dates", [False, True])
def test_the_last_tenth_by_time_is_the_test(frame, tmp_path, dates):
    order = np.random.default_rng(3).permutation(len(frame))
    times = [f"{1 + place % 28}.{1 + place // 28}.2020" for place in order] if dates else (order * 1000).tolist()
    timed = frame.with_columns(timestamp=pl.Series(times))
    split = split_clicks(read_clicks(config_for(write(timed, tmp_path / "clicks.csv"))))
    assert set(order[split.test]) == set(range(270, 300))
    assert set(order[split.validation]) == set(range(240, 270))
    drawn = split_clicks(read_clicks(config_for(write(timed, tmp_path / "clicks.csv"), time_col="")), seed=1)
    assert set(order[drawn.test]) != set(range(270, 300))
    assert sorted([*drawn.train, *drawn.validation, *drawn.test]) == list(range(300))


def test_parts_follow_from_the_seed_and_need_both_answers(frame, tmp_path):
    table = read_clicks(config_for(write(frame, tmp_path / "clicks.csv")))
    assert np.array_equal(split_clicks(table, seed=4).test, split_clicks(table, seed=4).test)
    assert not np.array_equal(split_clicks(table, seed=4).test, split_clicks(table, seed=5).test)
    path = write(frame.with_columns(clicked=pl.lit(1)), tmp_path / "all.csv")
    with pytest.raises(DataError, match="every label of the train rows is 1; is it the right column"):
        split_clicks(read_clicks(config_for(path)))
    with pytest.raises(DataError, match="12 rows are too few to be split"):
        split_clicks(read_clicks(config_for(write(frame.head(12), tmp_path / "few.csv"))))


def test_training_knows_only_its_own_values_the_most_frequent_first(frame, tmp_path):
    split = split_clicks(read_clicks(config_for(write(frame, tmp_path / "clicks.csv"))))
    users = frame["user"].to_numpy()[split.train]
    known = split.known["user"]
    assert sorted(known.ids) == sorted(set(users.tolist()))
    assert known.counts.tolist() == sorted(known.counts.tolist(), reverse=True)
    assert all(count == (users == id).sum() for id, count in zip(known.ids, known.counts, strict=True))
    tags = [tag for text in frame["tags"].to_numpy()[split.train] for tag in text.split("|") if tag]
    assert dict(zip(split.known["tags"].ids.tolist(), split.known["tags"].counts.tolist(), strict=True)) == {
        int(to_ids(tag)): tags.count(tag) for tag in set(tags)
    }
    assert "price" not in split.known
    assert not np.isnan(split.numbers["price"]).any()


def test_a_drawn_item_brings_its_own_columns_and_the_rest_stays(frame, tmp_path):
    path = write(frame, tmp_path / "clicks.csv")
    split = split_clicks(read_clicks(config_for(path, "user,item,device,tags:|", label=None, item_columns=("tags",))))
    examples = split.examples(split.test, num_negatives=3, random=np.random.default_rng(0))
    inputs, labels = next(examples.batches(10_000))
    assert labels.view(-1, 4)[:, 0].eq(1).all()
    assert labels.sum() == len(split.test)
    for name in ("user", "device"):
        assert (inputs[name].view(-1, 4) == inputs[name].view(-1, 4)[:, :1]).all(), "of the action itself"
    tags_of = {int(to_ids(item)): tags for item, tags in frame.select("item", "tags").iter_rows()}
    assert len(set(inputs["item"].tolist())) > 20
    for item, tags in zip(inputs["item"].tolist(), inputs["tags"].tolist(), strict=True):
        wanted = to_ids(tags_of[item].split("|") if tags_of[item] else []).tolist()
        assert [id for id in tags if id != MISSING] == wanted
    known = set(split.known["item"].ids.tolist())
    assert {int(item) for item in inputs["item"].view(-1, 4)[:, 1:].flatten()} <= known


def test_without_a_label_it_must_be_known_what_is_drawn(frame, tmp_path):
    renamed = frame.rename({"item": "thing"})
    path = write(renamed, tmp_path / "clicks.csv")
    with pytest.raises(ValueError, match="there is no label, and it is not known for which column negatives are drawn"):
        read_clicks(config_for(path, "user,thing", label=None))
    assert read_clicks(config_for(path, "user,thing", label=None, item_col="thing")).item == "thing"


def test_a_whole_table_is_measured_as_it_is(frame, tmp_path):
    table = read_clicks(config_for(write(frame, tmp_path / "clicks.csv")))
    assert len(whole_table(table).test) == len(frame)


def test_the_world_has_users_and_items():
    table = read_clicks(ClickConfig("world:users=30,items=20,actions=300", parse_columns("item,user")))
    assert table.num_rows == 300
    assert table.times is not None
    with pytest.raises(DataError, match="the world has the columns user and item and no labels"):
        read_clicks(ClickConfig("world", parse_columns("item,user,device")))


def test_values_in_memory_are_checked_as_those_of_a_file():
    columns = parse_columns("user:integer,device:string,price:number")
    inputs = to_inputs({"user": [5, None], "device": np.array(["a", "b"]), "price": [1, 2.5]}, columns)
    assert inputs["user"].tolist() == [5, MISSING]
    assert inputs["price"].dtype == torch.float32
    ok = {"user": [5], "device": ["a"], "price": [1]}
    for wrong, message in (
        ({"user": ["a"]}, "column 'user' has integers in this model, and not strings"),
        ({"user": [5, 6]}, "different lengths: user 2, device 1, price 1"),
        ({"user": [5, "a"]}, "needs a list of values of one kind"),
        ({"device": 5}, "needs a list of values"),
    ):
        with pytest.raises(DataError, match=message):
            to_inputs({**ok, **wrong}, columns)
    with pytest.raises(DataError, match="the column 'price' is not there; the model needs user, device, price"):
        to_inputs({"user": [5], "device": ["a"]}, columns)

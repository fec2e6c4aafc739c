from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableless.data.interactions import DataError, Interactions
from tableless.data.interactions_writer import keep_core
from tests.data.tiny import assert_same, in_order

users_of_items = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=8), min_size=2, max_size=12)


def test_users_and_items_go_until_nothing_changes():
    # Item 3 goes, then user 2 (one action left), then item 2, and then it is stable.
    whole = in_order([[0, 1], [1, 0], [2, 3], [0, 1, 2]])
    core = keep_core(whole, 2)
    assert core.user_ids.tolist() == [0, 10, 30]
    assert core.item_ids.tolist() == [0, 100]
    assert core.item_names.to_list() == ["0", "1"]
    assert core.starts.tolist() == [0, 2, 4, 6]
    assert core.items.tolist() == [0, 1, 1, 0, 0, 1]
    assert core.times.tolist() == [0, 1, 0, 1, 0, 1]


@given(users_of_items, st.integers(0, 4))
def test_it_agrees_with_a_slow_second_implementation(actions, core):
    kept = [(user, item) for user, items in enumerate(actions) for item in items]
    while True:
        users, items = Counter(user for user, _ in kept), Counter(item for _, item in kept)
        fewer = [(user, item) for user, item in kept if users[user] >= core and items[item] >= core]
        if fewer == kept:
            break
        kept = fewer
    try:
        result = keep_core(in_order(actions), core)
    except DataError:
        assert not kept
        return
    pairs = zip(result.user_ids[result.user_rows()] // 10, result.item_ids[result.items] // 100, strict=True)
    assert list(pairs) == kept


def test_it_can_be_written_to_a_directory(tmp_path):
    whole = in_order([[0, 1], [1, 0], [2, 3], [0, 1, 2]])
    written = keep_core(whole, 2, directory=tmp_path)
    assert_same(written, keep_core(whole, 2))
    assert_same(written, Interactions.load(tmp_path))
    assert isinstance(written.items, np.memmap)


def test_nothing_to_drop_is_nothing_to_copy():
    whole = in_order([[0, 1], [1, 0]])
    assert keep_core(whole, 2) is whole


def test_a_core_that_leaves_nothing_is_refused():
    with pytest.raises(DataError, match="core 7"):
        keep_core(in_order([[0, 1], [1, 0]]), 7)


def test_a_negative_core_is_refused():
    with pytest.raises(DataError, match="not -1"):
        keep_core(in_order([[0, 1], [1, 0]]), -1)

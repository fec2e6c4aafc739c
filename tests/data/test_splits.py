from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableless.data import interactions as user_blocks
from tableless.data.interactions import DataError
from tableless.data.splits import split_global_time, split_leave_one_out
from tests.data.tiny import assert_same, build, in_order


def training_of(split):
    starts = split.train.starts
    return [list(split.train.items[a:b]) for a, b in pairwise(starts)]


def held_out(users, items):
    return dict(zip(users.tolist(), items.tolist(), strict=True))


users_of_items = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=8), min_size=2, max_size=12)


class TestLeaveOneOut:
    def test_the_last_action_is_test_and_the_one_before_validation(self):
        split = split_leave_one_out(in_order([[0, 1, 2, 3], [3, 1, 0]]))
        assert training_of(split) == [[0, 1], [3]]
        assert held_out(split.validation_users, split.validation_items) == {0: 2, 1: 1}
        assert held_out(split.test_users, split.test_items) == {0: 3, 1: 0}

    def test_users_with_fewer_than_three_actions_stay_in_training(self):
        split = split_leave_one_out(in_order([[0, 1], [2], [0, 1, 2]]))
        assert training_of(split) == [[0, 1], [2], [0]]
        assert split.test_users.tolist() == [2]

    def test_of_a_repeated_item_only_the_last_action_counts(self):
        split = split_leave_one_out(in_order([[0, 1, 2, 0], [5, 5, 6, 6]]))
        assert training_of(split) == [[1], [5, 6]]  # the second user has but two different items
        assert held_out(split.validation_users, split.validation_items) == {0: 2}
        assert held_out(split.test_users, split.test_items) == {0: 0}

    def test_all_rows_are_known(self):
        split = split_leave_one_out(in_order([[0, 1, 2], [0, 3, 4]]))
        assert (split.num_known_users, split.num_known_items) == (2, 5)
        assert split.train.num_items == 5

    def test_rows_are_int32_and_training_has_no_times(self):
        split = split_leave_one_out(in_order([[0, 1, 2], [0, 3, 4]]))
        for rows in (split.validation_users, split.validation_items, split.test_users, split.test_items):
            assert rows.dtype == np.int32
        assert split.train.times is None

    @given(users_of_items, st.integers(0, 3), st.booleans())
    def test_every_pair_of_user_and_item_is_in_one_part(self, actions, seed, timed):
        whole = in_order(actions) if timed else build(actions)
        split = split_leave_one_out(whole, seed=seed)
        validation = held_out(split.validation_users, split.validation_items)
        test = held_out(split.test_users, split.test_items)
        for user, (before, after) in enumerate(zip(actions, training_of(split), strict=True)):
            distinct = set(before)
            assert (user in test) == (user in validation) == (len(distinct) >= 3)
            parts = after + [part[user] for part in (validation, test) if user in part]
            assert Counter(parts) == Counter(distinct)

    def test_without_times_the_seed_decides(self):
        whole = build([list(range(10))] * 50)
        first, again, other = (split_leave_one_out(whole, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.test_items, again.test_items)
        np.testing.assert_array_equal(first.validation_items, again.validation_items)
        assert (first.test_items != other.test_items).any()

    def test_without_times_every_action_is_as_likely_to_be_held_out(self):
        split = split_leave_one_out(build([[0, 1, 2, 3]] * 8000))
        for items in (split.test_items, split.validation_items):
            assert np.bincount(items).min() > 1850  # of 2000 expected, standard deviation 39

    @pytest.mark.parametrize("timed", [True, False])
    def test_the_size_of_blocks_does_not_matter(self, monkeypatch, timed):
        generator = np.random.default_rng(0)
        actions = [generator.integers(0, 9, generator.integers(1, 12)).tolist() for _ in range(40)]
        whole = in_order(actions) if timed else build(actions)
        at_once = split_leave_one_out(whole, seed=5)
        monkeypatch.setattr(user_blocks, "_BLOCK_ROWS", 7)
        in_blocks = split_leave_one_out(whole, seed=5)
        assert_same(at_once.train, in_blocks.train)
        np.testing.assert_array_equal(at_once.test_items, in_blocks.test_items)
        np.testing.assert_array_equal(at_once.validation_users, in_blocks.validation_users)


class TestGlobalTime:
    # Ten actions at times 0..9; with shares of .2, training ends before 6 and test begins at 8.
    whole = build([[3, 2, 0], [2, 1], [4, 2, 3], [5, 1]], [[0, 1, 6], [2, 8], [3, 4, 7], [5, 9]])

    def split(self):
        return split_global_time(self.whole, validation_share=0.2, test_share=0.2)

    def test_the_periods_follow_each_other(self):
        split = self.split()
        names = split.train.item_names.to_list()
        assert [[names[item] for item in items] for items in training_of(split)] == [
            ["3", "2"],
            ["2"],
            ["4", "2"],
            ["5"],
        ]
        assert [(user, names[item]) for user, item in held_out(split.test_users, split.test_items).items()] == [
            (1, "1"),
            (3, "1"),
        ]

    def test_what_the_user_had_before_is_not_held_out(self):
        split = self.split()
        names = split.train.item_names.to_list()
        validation = held_out(split.validation_users, split.validation_items)
        assert {user: names[item] for user, item in validation.items()} == {0: "0", 2: "3"}
        again = split_global_time(
            build([[1, 0, 0], [1, 1, 2]], [[0, 2, 4], [1, 3, 5]]), validation_share=0.3, test_share=0.3
        )
        assert len(again.validation_users) == 1  # user 1's second 1 is nothing new
        assert again.test_users.tolist() == [1]  # nor is user 0's second 0

    def test_known_rows_come_first_and_keep_their_order(self):
        split = self.split()
        assert split.num_known_users == 4
        assert split.num_known_items == 4
        assert split.train.item_names.to_list() == ["2", "3", "4", "5", "0", "1"]
        assert split.train.item_ids.tolist() == [200, 300, 400, 500, 0, 100]

    def test_users_that_come_later_are_new(self):
        whole = build([[0, 1], [0], [1, 2], [0, 1]], [[8, 9], [7], [0, 1], [2, 3]])
        split = split_global_time(whole, validation_share=0.15, test_share=0.3)
        assert split.num_known_users == 2
        assert split.train.user_ids.tolist() == [20, 30, 0, 10]
        assert training_of(split) == [[1, 2], [0, 1], [], []]
        assert held_out(split.validation_users, split.validation_items) == {3: 0}
        assert held_out(split.test_users, split.test_items) == {2: 0}  # the first of its two

    def test_held_out_users_ascend_though_new_ones_were_moved(self):
        # User 0 has no action before the test, and so moves behind user 1.
        split = split_global_time(
            build([[0, 1], [0, 1, 2], [1, 2]], [[8, 9], [0, 5, 7], [1, 6]]), validation_share=0.2, test_share=0.4
        )
        assert split.train.user_ids.tolist() == [10, 20, 0]
        assert split.test_users.tolist() == [0, 2]
        assert split.test_items.tolist() == [2, 0]

    def test_actions_of_one_time_stay_together_in_the_later_period(self):
        split = split_global_time(build([[0, 1], [2, 3], [4, 5]], [[1, 2], [2, 3], [3, 3]]))
        assert split.train.num_actions == 1
        assert sorted(split.test_users.tolist()) == [1, 2]

    @given(users_of_items, st.integers(0, 2**32))
    def test_the_future_never_reaches_training(self, actions, seed):
        generator = np.random.default_rng(seed)
        times = [np.sort(generator.integers(0, 50, len(items))) for items in actions]
        whole = build(actions, times)
        try:
            split = split_global_time(whole, validation_share=0.2, test_share=0.2)
        except DataError:
            return
        all_times = np.sort(whole.times)
        test_from = all_times[-max(1, round(0.2 * len(all_times)))]
        rows = {user_id: row for row, user_id in enumerate(split.train.user_ids.tolist())}
        names = split.train.item_names.to_list()
        test = held_out(split.test_users, split.test_items)
        for user, (items, at) in enumerate(zip(actions, times, strict=True)):
            first_time = dict(reversed(list(zip(items, at, strict=True))))
            later = [item for item in dict.fromkeys(items) if first_time[item] >= test_from]
            assert (names[test[rows[10 * user]]] == str(later[0])) if later else (rows[10 * user] not in test)

    def test_data_without_times_is_refused(self):
        with pytest.raises(DataError, match="needs times"):
            split_global_time(build([[0, 1], [1, 0]]))

    @pytest.mark.parametrize("shares", [(0, 0.1), (0.1, 0), (0.5, 0.5), (-0.1, 0.2), (float("nan"), 0.1)])
    def test_shares_that_leave_nothing_are_refused(self, shares):
        with pytest.raises(DataError, match=f"validation_share {shares[0]}"):
            split_global_time(self.whole, validation_share=shares[0], test_share=shares[1])

    def test_one_time_for_everything_is_refused(self):
        with pytest.raises(DataError, match="same time"):
            split_global_time(build([[0, 1], [1, 0]], [[5, 5], [5, 5]]))

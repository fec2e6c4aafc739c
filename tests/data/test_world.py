import os
import subprocess
import sys

import numpy as np
import pytest

from tableless.data import world as module
from tableless.data.interactions import DataError
from tableless.data.splits import split_global_time, split_leave_one_out
from tableless.data.world import World

SMALL = World(num_users=200, num_items=100, num_actions=4000)


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("starts", "items", "times"))


def auc(scores, touched, held_out):
    """Share of the items the user never touched that score below the held-out one."""
    never = np.ones(len(scores), bool)
    never[touched] = False
    below, equal = scores[never] < scores[held_out], scores[never] == scores[held_out]
    return below.mean() + equal.mean() / 2


class TestActions:
    def test_the_numbers_are_those_asked_for(self):
        drawn = SMALL.interactions()
        assert (drawn.num_users, drawn.num_items, drawn.num_actions) == (200, 100, 4000)
        assert (drawn.items.dtype, drawn.times.dtype) == (np.int32, np.int64)

    @pytest.mark.parametrize("num_actions", [1000, 1001, 9999, 10_000])
    def test_any_possible_number_of_actions_is_kept_exactly(self, num_actions):
        counts = np.diff(World(num_users=200, num_items=100, num_actions=num_actions).interactions().starts)
        assert counts.sum() == num_actions
        assert 5 <= counts.min() <= counts.max() <= 50

    def test_users_differ_in_how_active_they_are(self):
        counts = np.diff(World().interactions().starts)
        assert counts.min() < 15
        assert counts.max() > 200

    def test_no_user_picks_an_item_twice(self):
        drawn = World().interactions()
        pairs = drawn.user_rows().astype(np.int64) * drawn.num_items + drawn.items
        assert len(np.unique(pairs)) == drawn.num_actions

    def test_times_ascend_within_a_user(self):
        drawn = SMALL.interactions()
        ascends = np.diff(drawn.times) > 0
        assert ascends[np.diff(drawn.user_rows()) == 0].all()

    def test_some_users_are_new_after_a_split_by_time(self):
        split = split_global_time(World().interactions())
        assert 0 < split.num_known_users < 3000

    def test_the_first_pick_follows_the_probabilities(self):
        world = World(num_users=20_000, num_items=20, num_actions=100_000, num_clusters=4)
        drawn = world.interactions()
        expected = np.exp(world.scores(np.arange(20_000))).sum(0)
        first = np.bincount(drawn.items[drawn.starts[:-1]], minlength=20)
        np.testing.assert_array_less(np.abs(first - expected), 5 * np.sqrt(expected))

    def test_the_last_pick_follows_the_probabilities_of_what_is_left(self):
        world = World(num_users=20_000, num_items=20, num_actions=100_000, num_clusters=4)
        drawn = world.interactions()
        picks = drawn.items.reshape(20_000, 5)
        probabilities = np.exp(world.scores(np.arange(20_000)))
        np.put_along_axis(probabilities, picks[:, :4], 0, axis=1)
        expected = (probabilities / probabilities.sum(1, keepdims=True)).sum(0)
        last = np.bincount(picks[:, 4], minlength=20)
        np.testing.assert_array_less(np.abs(last - expected), 5 * np.sqrt(expected))


class TestScores:
    def test_probabilities_add_up_to_one(self):
        scores = SMALL.scores(np.array([3, 199, 3], np.int32))
        assert scores.shape == (3, 100)
        np.testing.assert_allclose(np.exp(scores).sum(1), 1)
        np.testing.assert_array_equal(scores[0], scores[2])

    def test_rows_say_nothing_about_popularity(self):
        popularity = np.bincount(World().interactions().items)
        assert abs(np.corrcoef(np.argsort(np.argsort(popularity)), np.arange(2000))[0, 1]) < 0.1

    def test_few_items_have_much_of_the_popularity(self):
        popularity = np.sort(np.bincount(World().interactions().items))[::-1]
        assert popularity[:200].sum() > 0.4 * popularity.sum()

    @pytest.mark.parametrize("seed", [0, 1])
    def test_popularity_leaves_room_below_the_best_possible_auc(self, seed):
        world = World(seed=seed)
        drawn = world.interactions()
        split = split_leave_one_out(drawn)
        popularity = np.bincount(split.train.items, minlength=2000)
        sample = slice(None, None, 3)
        best, floor = [], []
        for user, item in zip(split.test_users[sample], split.test_items[sample], strict=True):
            touched = drawn.items[drawn.starts[user] : drawn.starts[user + 1]]
            floor.append(auc(popularity, touched, item))
            best.append(auc(world.scores(np.array([user]))[0], touched, item))
        assert 0.74 < np.mean(floor) < 0.81
        assert 0.88 < np.mean(best) < 0.93


class TestDeterminism:
    def test_the_same_seed_is_the_same_world(self):
        assert same(World(seed=4).interactions(), World(seed=4).interactions())

    def test_another_seed_is_another_world(self):
        assert not same(World(seed=4).interactions(), World(seed=5).interactions())

    def test_another_process_finds_the_same_world(self):
        program = (
            "from tableless.data.world import World; "
            "drawn = World(num_users=200, num_items=100, num_actions=4000).interactions(); "
            "print(int((drawn.items * (1 + drawn.times % 1000)).sum()))"
        )
        environment = {**os.environ, "PYTHONHASHSEED": "7"}
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        drawn = SMALL.interactions()
        assert int(run.stdout) == int((drawn.items * (1 + drawn.times % 1000)).sum())

    def test_a_world_larger_than_a_block_is_whole(self):
        world = World(num_users=module._BLOCK_USERS + 10, num_items=50, num_actions=5 * (module._BLOCK_USERS + 10))
        drawn = world.interactions()
        assert drawn.num_users == module._BLOCK_USERS + 10
        assert drawn.items.max() < 50
        rows = np.array([module._BLOCK_USERS + 3, 2])
        np.testing.assert_array_equal(world.scores(rows)[1], world.scores(rows[1:])[0])


class TestNames:
    def test_world_alone_is_the_default_world(self):
        assert World.parse("world") == World()

    def test_options_are_named_shortly(self):
        text = "world:users=10,items=200,actions=1_000,clusters=3,dim=2,seed=9"
        assert World.parse(text) == World(10, 200, 1000, 3, 2, 9)

    @pytest.mark.parametrize("text", ["worlds", "movielens-1m", "world.csv", "./world"])
    def test_anything_else_is_no_world(self, text):
        assert World.parse(text) is None

    @pytest.mark.parametrize("option", ["size=4", "users=many", "users", "users=-3"])
    def test_an_unknown_option_is_refused_with_those_there_are(self, option):
        with pytest.raises(DataError, match=f"'{option}'.*users, items, actions, clusters, dim, seed"):
            World.parse(f"world:{option}")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_users": 1}, "num_users ≥ 2, not 1"),
            ({"num_items": 3}, "num_items ≥ 10, not 3"),
            ({"dim": 0}, "dim ≥ 1, not 0"),
            ({"num_actions": 10}, "15000 to 3000000 actions, not 10"),
            ({"num_actions": 10**9}, "15000 to 3000000 actions, not 1000000000"),
        ],
    )
    def test_an_impossible_world_is_refused(self, options, message):
        with pytest.raises(DataError, match=message):
            World(**options)

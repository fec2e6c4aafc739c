"""Splits: which interactions are for training, for validation and for test."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .interactions import DataError, Interactions, Part, Report, UserBlock, forget_pages, row_blocks, user_blocks


@dataclass(frozen=True)
class Split:
    """Training actions, and held-out actions for validation and test.

    Each part may hold none, one or (in a given split) several actions of a user; these stand together, and users
    ascend. `train` has the rows of the whole (a new user has no actions in it), but no times, because nothing needs
    them any more. A held-out item never occurs among the training actions of its user, nor in the other held-out part.
    """

    train: Interactions
    validation_users: NDArray[np.int32]
    validation_items: NDArray[np.int32]
    test_users: NDArray[np.int32]
    test_items: NDArray[np.int32]
    num_known_users: int  # rows below this occur in training, the others are new at test time
    num_known_items: int

    @property
    def actions_per_id(self) -> float:
        """Training actions for each known user and item: how much there is to learn from."""
        return self.train.num_actions / max(1, self.num_known_users + self.num_known_items)


def split_leave_one_out(interactions: Interactions, *, seed: int = 0, report: Report | None = None) -> Split:
    """Each user's last action is test, the one before validation, the rest training (appendix B.1 of the paper).

    Users with fewer than three actions stay in training entirely. If a user has an item several times, only the last
    of these actions counts: else the held-out item could be known from training. Without times, the two actions that
    are held out are drawn at random by `seed`. `report` is told how many actions don't count.
    """
    generator = np.random.default_rng(seed)
    split, repeated = _SplitWriter(interactions), 0
    for block in user_blocks(interactions):
        distinct = block.take(block.one_of_each_pair(interactions.num_items, which="last"))
        counts = distinct.counts()
        ends = np.cumsum(counts)
        if interactions.times is None:
            draws = generator.random((len(counts), 2))
            test = ends - counts + (draws[:, 0] * counts).astype(np.int64)
            validation = ends - counts + (draws[:, 1] * (counts - 1)).astype(np.int64)
            validation += validation >= test  # any action but the test action, each as likely
        else:
            test, validation = ends - 1, ends - 2
        enough = counts >= 3
        part = np.zeros(len(distinct.items), np.int8)
        part[validation[enough]] = 1
        part[test[enough]] = 2
        split.append(distinct, train=part == 0, validation=part == 1, test=part == 2)
        repeated += len(block.items) - len(distinct.items)
    _tell_repeated(repeated, "last", report)
    return split.finish()


def split_global_time(
    interactions: Interactions,
    *,
    validation_share: float = 0.1,
    test_share: float = 0.1,
    report: Report | None = None,
) -> Split:
    """By time over all users: the last `test_share` of the actions are test, those before them validation.

    Whole users and items are then new at test time; rows are renumbered so that those known from training come first.
    Held out is each user's first action in a period. If a user has an item several times, only the first of these
    actions counts: a repetition is nothing to predict. Actions of one time stay together, in the later period.
    """
    if interactions.times is None:
        raise DataError("a split by time needs times, and this data has none; name a time column, or leave one out")
    if not (validation_share > 0 and test_share > 0 and validation_share + test_share < 1):
        raise DataError(
            f"validation_share {validation_share} and test_share {test_share} must be above 0, and below 1 together"
        )
    test_from = _time_of_last(interactions.times, test_share)
    validation_from = _time_of_last(interactions.times, validation_share, before=test_from)
    split, repeated = _SplitWriter(interactions), 0
    for block in user_blocks(interactions):
        distinct = block.take(block.one_of_each_pair(interactions.num_items, which="first"))
        assert distinct.times is not None
        period = (distinct.times >= validation_from).astype(np.int8) + (distinct.times >= test_from)
        validation, test = (distinct.first_of_each_user(period == number) for number in (1, 2))
        split.append(distinct, train=period == 0, validation=validation, test=test)
        repeated += len(block.items) - len(distinct.items)
    _tell_repeated(repeated, "first", report)
    result = split.finish()
    if not result.train.num_actions:
        raise DataError("nothing is left for training: too many of the actions have the same time")
    for part, users in (("validation", result.validation_users), ("test", result.test_users)):
        if not len(users):
            raise DataError(f"no user has an item in the {part} period that is new to them; take a larger share")
    return _known_first(result)


def split_given(interactions: Interactions, *, seed: int = 0, report: Report | None = None) -> Split:
    """The split that came with the data: the time of each action is its `Part` (see `load_parts`).

    Users and items that are not in the training part are new; rows are renumbered so that the known ones come first.
    A pair of user and item counts once, in the first of its parts, because a test asks for items that are not known
    from training. `report` is told how many pairs were left out of the later parts for that reason.

    Many published splits, LightGCN's among them, have no validation part. Then one training action of each user with
    at least three, drawn by `seed`, is held out for validation. Its item is not ranked in the test either.
    """
    parts = interactions.times
    assert parts is not None
    no_validation = not any((parts[rows] == Part.VALIDATION).any() for rows in row_blocks(len(parts)))
    generator = np.random.default_rng(seed)
    split, repeated = _SplitWriter(interactions), 0
    for block in user_blocks(interactions):
        distinct = block.take(block.one_of_each_pair(interactions.num_items, which="first"))
        assert block.times is not None
        assert distinct.times is not None
        for part in (Part.VALIDATION, Part.TEST):
            given = block.take(block.times == part).one_of_each_pair(interactions.num_items, which="first")
            repeated += int(given.sum() - (distinct.times == part).sum())
        part_of = np.array(distinct.times)
        if no_validation:
            counts = distinct.take(part_of == Part.TRAIN).counts()
            # A user's actions are in the order of their parts, so that those for training come first.
            first = np.cumsum(distinct.counts()) - distinct.counts()
            drawn = first + (generator.random(len(counts)) * counts).astype(np.int64)
            part_of[drawn[counts >= 3]] = Part.VALIDATION
        train, validation, test = (part_of == part for part in Part)
        split.append(distinct, train=train, validation=validation, test=test)
    if repeated and report is not None:
        report(f"{repeated:,} pairs of user and item are in an earlier part as well, and count there alone", None, None)
    result = split.finish()
    for name, num_actions in (("training", result.train.num_actions), ("test", len(result.test_users))):
        if not num_actions:
            raise DataError(f"the given split has no actions for {name}; is it the right column, or the right file?")
    return _known_first(result, drawn_items=result.validation_items if no_validation else None)


def _tell_repeated(repeated: int, kept: str, report: Report | None) -> None:
    if repeated and report is not None:
        report(
            f"dropped {repeated:,} repeated actions: of each pair of user and item only the {kept} counts", None, None
        )


class _SplitWriter:
    """Collects the parts of a split, block by block."""

    def __init__(self, interactions: Interactions) -> None:
        self._whole = interactions
        self._counts = np.zeros(interactions.num_users, np.int64)
        # As large as it could become: pages that are never written take no memory.
        self._items = np.empty(interactions.num_actions, np.int32)
        self._num_actions = 0
        self._validation: list[UserBlock] = []
        self._test: list[UserBlock] = []

    def append(
        self,
        block: UserBlock,
        *,
        train: NDArray[np.bool_],  # [actions of the block]
        validation: NDArray[np.bool_],
        test: NDArray[np.bool_],
    ) -> None:
        training = block.take(train)
        self._counts[block.user_rows] = training.counts()
        self._items[self._num_actions : self._num_actions + len(training.items)] = training.items
        self._num_actions += len(training.items)
        self._validation.append(block.take(validation))
        self._test.append(block.take(test))

    def finish(self) -> Split:
        starts = _starts_of(self._counts)
        return Split(
            train=replace(self._whole, starts=starts, items=self._items[: self._num_actions], times=None),
            validation_users=np.concatenate([block.users for block in self._validation]),
            validation_items=np.concatenate([block.items for block in self._validation]),
            test_users=np.concatenate([block.users for block in self._test]),
            test_items=np.concatenate([block.items for block in self._test]),
            num_known_users=self._whole.num_users,
            num_known_items=self._whole.num_items,
        )


def _starts_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _time_of_last(times: NDArray[np.int64], share: float, *, before: int | None = None) -> int:
    """The latest time from which on (until `before`) at least `share` of all actions happened, or else the first time.

    Found by bisection, because a sorted copy of all times may not fit in memory.
    """
    blocks = [times[rows] for rows in row_blocks(len(times))]
    low = min(int(block.min()) for block in blocks)
    high = max(int(block.max()) for block in blocks)
    later = 0 if before is None else _count_from(blocks, before)
    wanted = later + max(1, round(share * len(times)))
    while low < high:
        middle = (low + high + 1) // 2
        if _count_from(blocks, middle) >= wanted:
            low = middle
        else:
            high = middle - 1
    forget_pages(times)
    return low


def _count_from(blocks: list[NDArray[np.int64]], time: int) -> int:
    return sum(int(np.count_nonzero(block >= time)) for block in blocks)


def _known_first(split: Split, *, drawn_items: NDArray[np.int32] | None = None) -> Split:
    """Rows that are in training, or among the items drawn from it for validation, before those that are new."""
    train = split.train
    counts = np.diff(train.starts)
    known_users = counts > 0
    known_items = np.zeros(train.num_items, np.bool_)
    known_items[train.items] = True
    if drawn_items is not None:
        known_items[drawn_items] = True
    users, user_row = _order_first(known_users)
    items, item_row = _order_first(known_items)
    for rows in row_blocks(train.num_actions):  # in place: the array is the split's own
        train.items[rows] = item_row[train.items[rows]]
    validation = np.argsort(user_row[split.validation_users], kind="stable")  # users ascend again
    test = np.argsort(user_row[split.test_users], kind="stable")
    return Split(
        train=replace(
            train,
            user_ids=train.user_ids[users],
            item_ids=train.item_ids[items],
            starts=_starts_of(counts[users]),  # the actions stay where they are: only users without any moved
            item_names=None if train.item_names is None else train.item_names.gather(items),
        ),
        validation_users=user_row[split.validation_users][validation],
        validation_items=item_row[split.validation_items][validation],
        test_users=user_row[split.test_users][test],
        test_items=item_row[split.test_items][test],
        num_known_users=int(known_users.sum()),
        num_known_items=int(known_items.sum()),
    )


def _order_first(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The rows with the chosen ones first, and for each row its place in that order."""
    order = np.argsort(~chosen, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return order, place

"""Trellis codes: what they leave of a variance, that good codes are found, and that bits come back as written."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tableless.embedding.trellis import TrellisCode, fit_code, levels_of, share_bits, starting_levels, write_row
from tableless.kernels import trellis as loops


def normal_rows(count, dims, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dims))


def directions(code, windows):
    """The directions that windows stand for: [n, dims with bits] -> [n, dims]."""
    own = code.bits > 0
    out = np.tile(code.mean, (len(windows), 1))
    out[:, own] += code.scale[own] * code.levels[windows]
    return out


def error_of(code, rows):
    return float(((directions(code, code.windows(rows)) - rows) ** 2).mean() / rows.var())


@pytest.mark.parametrize(("bits", "bound", "scalar"), [(1, 0.25, 0.3634), (2, 0.0625, 0.1175), (3, 0.0156, 0.0345)])
def test_less_is_left_of_a_variance_than_by_levels_of_each_dimension_alone(bits, bound, scalar):
    rows = normal_rows(1500, 16)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)  # `fit_code` codes directions
    code = fit_code(rows, num_bits=16 * bits, gain_bits=0, length=6, generator=np.random.default_rng(0))
    left = error_of(code, normal_rows(500, 16, seed=1) / 4)
    assert bound < left < 0.96 * scalar


def test_the_code_that_is_found_is_nearly_the_best_of_all():
    random = np.random.default_rng(3)
    bits, length = np.array([1, 2, 1, 2]), 3
    code = TrellisCode(bits, np.zeros(4), np.ones(4), starting_levels(length, random), np.ones(1))
    rows = random.normal(size=(40, 4))
    found = ((directions(code, code.windows(rows)) - rows) ** 2).sum(1)
    ends, total = np.cumsum(bits), int(bits.sum())
    every = []
    for row in itertools.product((0, 1), repeat=total):
        windows = [sum(row[(end - length + k) % total] << k for k in range(length)) for end in ends]
        every.append(code.levels[windows])
    best = ((rows[:, None] - np.array(every)) ** 2).sum(-1).min(1)
    assert (found >= best - 1e-5).all(), "no code can be better than the best"
    assert found.sum() < 1.2 * best.sum()
    assert np.isclose(found, best, atol=1e-5).mean() > 0.6


@pytest.mark.parametrize("bits", [[2, 2, 2, 2], [6, 0, 1, 3], [1] * 12, [0, 0, 5, 4], [3, 1, 0, 2] * 10])
@pytest.mark.parametrize("fields", [[], [(4, 9)], [(3, 5), (8, 200)]])
def test_windows_are_read_as_they_were_written(bits, fields):
    random = np.random.default_rng(7)
    bits = np.array(bits)
    length = min(8, int(bits.sum()))
    dims = len(bits)
    code = TrellisCode(bits, np.zeros(dims), np.ones(dims), starting_levels(length, random), np.ones(1))
    windows = code.windows(random.normal(size=(20, dims)))
    before = sum(width for width, _ in fields)
    num_bits = before + int(bits.sum())
    order = random.permutation(20)  # rows are written in any order
    words = np.zeros(20 * num_bits // 64 + 2, np.uint64)
    given = [(width, np.full(20, value)) for width, value in fields]
    write_row(words, order * num_bits, given, windows, code)
    gains, read = np.empty(20, np.int64), np.empty((20, dims), np.int64)
    first = fields[0][0] if fields else 0
    layout = np.array([num_bits, first, before, length])
    loops.read_codes(order.astype(np.int64), words, layout, np.cumsum(bits).astype(np.int16), gains, read)
    assert (read[:, bits > 0] == windows).all()
    assert (gains == (fields[0][1] if fields else 0)).all()


def test_a_gain_brings_a_direction_nearest_to_its_vector():
    random = np.random.default_rng(11)
    vectors = random.normal(size=(300, 6)) * random.uniform(0.1, 9, (300, 1))
    code = fit_code(vectors, num_bits=12, gain_bits=3, length=6, generator=random)
    gains, windows = code.encode(vectors)
    coded = directions(code, windows)
    errors = ((vectors[:, None] - code.gains[:, None] * coded[:, None]) ** 2).sum(-1)  # [n, gains]
    assert (errors[np.arange(300), gains] <= errors.min(1) * 1.0001).mean() > 0.99
    assert len(set(gains.tolist())) > 4


def test_bits_go_where_they_explain_most():
    assert share_bits(np.array([16.0, 1.0, 1.0]), 4).tolist() == [3, 1, 0]
    assert share_bits(np.array([1.0, 0.0]), 3).tolist() == [3, 0]
    assert share_bits(np.array([1.0, 1.0]), 4, most=2).tolist() == [2, 2]


def test_levels_of_a_normal_variable_are_those_of_lloyd_and_max():
    levels = levels_of(normal_rows(200_000, 1)[:, 0], 4)
    assert np.allclose(levels, [-1.510, -0.4528, 0.4528, 1.510], atol=0.02)
    assert np.allclose(levels_of(np.array([1.0, 1.0, 3.0]), 2), [1, 3])

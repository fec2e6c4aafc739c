"""`choose_scheme` and `embedding_for`: what is chosen for which need, and that the reason says so."""

from __future__ import annotations

import logging

import pytest

from tableless import SCHEMES, choose_scheme, embedding_for

SIZES = {"embedding_dim": 32, "vocab_size": 5_000}


@pytest.mark.parametrize(
    ("budget", "needs", "name"),
    [
        ("1/1", {"open_vocabulary": False}, "full"),
        ("1/2", {"open_vocabulary": False}, "quantized"),
        ("37B/id", {"open_vocabulary": False}, "quantized"),
        ("36B/id", {"open_vocabulary": False}, "coded"),
        ("4B/id", {"open_vocabulary": False}, "coded"),
        ("8B/id", {}, "dhe"),
        ("1/1", {}, "dhe"),
        ("8B/id", {"microseconds": 50}, "dhe"),
        ("8B/id", {"microseconds": 1}, "coded"),
        ("60000 parameters", {"open_vocabulary": False}, "quantized"),
    ],
)
def test_a_scheme_is_chosen_by_bytes_new_ids_and_time(budget, needs, name):
    choice = choose_scheme(budget, **SIZES, **needs)
    assert choice.name == name
    assert choice.name in SCHEMES
    assert choice.reason.startswith(f"{name}: ")
    assert "\n" not in choice.reason


@pytest.mark.parametrize("needs", [{}, {"open_vocabulary": False}, {"microseconds": 1}])
def test_embedding_for_builds_what_was_chosen_within_the_budget_and_says_why(needs, caplog):
    with caplog.at_level(logging.INFO):
        scheme = embedding_for("8B/id", seed=3, **SIZES, **needs)
    choice = choose_scheme("8B/id", **SIZES, **needs)
    assert type(scheme) is SCHEMES[choice.name]
    assert scheme.num_bytes <= 8 * SIZES["vocab_size"]
    assert choice.options.items() <= scheme.config.items()
    assert choice.reason in caplog.text


def test_ids_that_come_later_are_told_apart_where_a_network_is_too_slow():
    assert choose_scheme("8B/id", **SIZES, microseconds=1).options["check_bits"] == 8

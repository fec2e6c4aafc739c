import pytest

from tableless.embedding.budget import Allowance, fit_to_budget, in_units, is_share, resolve_budget

DIM, VOCAB = 32, 100  # a table of 3,200 parameters, 12,800 bytes in float32


@pytest.mark.parametrize(
    ("budget", "num_bytes"),
    [
        ("64MB", 64_000_000),
        ("1.5GB", 1_500_000_000),
        ("2 KiB", 2048),
        ("4096B", 4096),
        ("4096 b", 4096),
        ("4096 bytes", 4096),
        ("8B/id", 800),
        ("8.5 B / id", 850),
        ("0.1KB/id", 10_000),
        ("1/16", 800),
        ("1/1", 12_800),
        ("25%", 3200),
        ("12.5 %", 1600),
        ("0.25", 3200),
        (0.25, 3200),
        (" 1/4 ", 3200),
        ("1/3", 4266),  # rounded down: a budget is kept
    ],
)
def test_memory_and_shares_of_the_table_are_bytes(budget, num_bytes):
    assert resolve_budget(budget, embedding_dim=DIM, vocab_size=VOCAB) == Allowance(num_bytes, "bytes")


@pytest.mark.parametrize(
    ("budget", "count"),
    [
        (20_000, 20_000),
        ("20000", 20_000),
        ("20000 parameters", 20_000),
        ("20000parameters", 20_000),
        ("1 parameter", 1),
        ("20000 PARAMS", 20_000),
        ("1/4 parameters", 800),
        ("25% parameters", 800),
        ("0.25 parameters", 800),
    ],
)
def test_plain_numbers_and_what_says_so_are_parameters(budget, count):
    assert resolve_budget(budget, embedding_dim=DIM, vocab_size=VOCAB) == Allowance(count, "parameters")


@pytest.mark.parametrize("budget", [Allowance(7, "bytes"), Allowance(7, "parameters")])
def test_an_allowance_stays_what_it_is_also_in_words(budget):
    assert resolve_budget(budget, embedding_dim=DIM, vocab_size=VOCAB) is budget
    assert resolve_budget(str(budget), embedding_dim=DIM, vocab_size=VOCAB) == budget
    assert not is_share(budget)


@pytest.mark.parametrize(
    "budget",
    [
        "a quarter",
        "",
        "1/0",
        "1/x",
        "1/4/4",
        "8B/item",
        "8 B per id",
        "64TB",
        "parameters",
        "MB",
        "1..5MB",
        "%",
        "nan",
        "8B/",
    ],
)
def test_nonsense_is_refused_with_what_may_be_written(budget):
    with pytest.raises(ValueError, match="is not understood") as error:
        resolve_budget(budget, embedding_dim=DIM, vocab_size=VOCAB)
    assert str(error.value) == (
        f'a budget of {budget!r} is not understood; give memory ("64MB", "4096B" or "8B/id"), a share of the full '
        'table ("1/16" or "25%"), or a number of parameters ("20000 parameters")'
    )


@pytest.mark.parametrize(
    ("budget", "unit"),
    [("0", "parameters"), ("-5", "parameters"), (0, "parameters"), ("0B", "bytes"), ("0.001B/id", "bytes"),
     ("1/100000000", "bytes"), ("1/100000000 parameters", "parameters"), ("-1/4", "bytes"), ("0%", "bytes")],
)  # fmt: skip
def test_nothing_is_no_budget(budget, unit):
    with pytest.raises(ValueError, match=f"a budget of {budget!r} comes to less than one of its {unit}"):
        resolve_budget(budget, embedding_dim=DIM, vocab_size=VOCAB)


def test_what_depends_on_the_vocabulary_is_a_share():
    shares = ["1/4", "0.5", "25%", "12.5 %", "8B/id", "8.5 B / id", "1/4 parameters"]
    fixed = [1234, "1234", "64MB", "1.5MB", "4096 B", "20000 parameters"]
    assert all(map(is_share, shares))
    assert not any(map(is_share, fixed))


def test_an_allowance_is_divided_and_counted_in_its_own_unit():
    allowed = Allowance(1000, "parameters")
    assert allowed.share(1, 3) == Allowance(333, "parameters")
    assert allowed.without(400) == Allowance(600, "parameters")
    assert (allowed.num_bytes, Allowance(1000, "bytes").num_bytes) == (4000, 1000)
    assert (allowed.cost(OfSize(9)), Allowance(1, "bytes").cost(OfSize(9))) == (9, 23)


class OfSize:
    """Something with a size, as a scheme has one: two bytes for each of its parameters, and five more."""

    def __init__(self, size):
        self.num_parameters, self.num_bytes = size, 2 * size + 5


@pytest.mark.parametrize(("unit", "size"), [("parameters", 1000), ("bytes", 497)])
def test_the_largest_that_fits_is_found_in_either_unit(unit, size):
    assert fit_to_budget(OfSize, Allowance(1000, unit)).num_parameters == size
    assert fit_to_budget(OfSize, Allowance(1000, unit), largest=40).num_parameters == 40
    with pytest.raises(ValueError, match=f"a budget of 6 {unit} is too small; the smallest possible here is "):
        fit_to_budget(OfSize, Allowance(6, unit), smallest=10)


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(0, "0 B"), (8.31, "8.31 B"), (999, "999 B"), (1000, "1.00 KB"), (64_000, "64.0 KB"), (999_499, "999 KB"),
     (999_501, "1.00 MB"), (9_999_000, "10.0 MB"), (1_549_000, "1.55 MB"), (3e12, "3000 GB")],
)  # fmt: skip
def test_bytes_are_written_as_people_read_them(num_bytes, words):
    assert in_units(num_bytes) == words

import sys

import pytest
import torch

from tableless.serving import search as neighbors
from tableless.serving.search import ExactRows, FaissRows, nearest_rows


@pytest.fixture(scope="module")
def rows():
    return torch.randn(3_000, 16, generator=torch.Generator().manual_seed(0))


def largest(rows, query, count):
    """In plain words."""
    return sorted(range(len(rows)), key=lambda row: float(rows[row] @ query), reverse=True)[:count]


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_few_rows_are_found_exactly_with_their_products(kind, rows):
    query = torch.linspace(-1, 1, 16)
    products, found = nearest_rows(kind, rows).search(query, 7)
    assert found.tolist() == largest(rows, query, 7)
    torch.testing.assert_close(products, rows[found] @ query)


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_more_rows_than_there_are_gives_all(kind, rows):
    _, found = nearest_rows(kind, rows[:5]).search(rows[0], 100)
    assert sorted(found.tolist()) == [0, 1, 2, 3, 4]


def test_a_graph_finds_nearly_all_of_the_largest_products(rows, monkeypatch):
    monkeypatch.setattr(neighbors, "FEWEST_ROWS_FOR_GRAPH", 1_000)
    stretched = rows * torch.linspace(0.5, 2, len(rows)).unsqueeze(-1)  # lengths matter to scores, not to cosines
    graph, exact = FaissRows(stretched), ExactRows(stretched)
    hits = 0
    for query in rows[:50]:
        hits += int(torch.isin(graph.search(query, 10)[1], exact.search(query, 10)[1]).sum())
    assert hits >= 0.95 * 500


def test_a_graph_can_be_asked_for_many(rows, monkeypatch):
    monkeypatch.setattr(neighbors, "FEWEST_ROWS_FOR_GRAPH", 1_000)
    products, found = FaissRows(rows).search(rows[0], 500)
    assert len(found.unique()) == len(found) >= 490
    assert products.tolist() == sorted(products.tolist(), reverse=True)


def test_without_faiss_the_way_to_get_it_is_named(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install 'tableless\[serve\]'"):
        nearest_rows("faiss", rows)
    assert len(nearest_rows("exact", rows).search(rows[0], 3)[1]) == 3

"""Product quantization: its codes are faiss' codes, and its errors are no larger than those of faiss."""

import builtins

import faiss
import numpy as np
import pytest
import torch

from tableless import distil
from tableless.embedding.tables import ProductQuantizedEmbedding
from tableless.embedding.tables.column_parts import metric_roots, part_sizes

ROWS, DIM = 1500, 12
IDS = torch.randperm(ROWS, generator=torch.Generator().manual_seed(9))

pytestmark = pytest.mark.filterwarnings("ignore:.*unexplained")


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def table(seed=0):
    """Directions of very different variance, mixed, and a mean that is not zero."""
    return normal(ROWS, DIM, seed=seed) * torch.logspace(0.5, -1, DIM) @ normal(DIM, DIM, seed=seed + 1) + 2


def fitted(rows, *, metric=None, weights=None, **arguments):
    scheme = ProductQuantizedEmbedding(DIM, vocab_size=ROWS, **arguments)
    distil(rows, scheme, ids=IDS, metric=metric, weights=weights)
    return scheme


def error(scheme, rows, metric=None, weights=None):
    errors = (scheme(IDS).detach() - rows).double()
    errors = errors if metric is None else errors @ metric.double()
    return float((errors.square().sum(-1) * (1 if weights is None else weights)).sum())


@pytest.mark.parametrize(("parts", "bits"), [(4, 8), (6, 4), (3, 4), (12, 4)])
def test_faiss_reads_our_codes_and_gives_our_vectors(parts, bits):
    scheme = fitted(table(), num_parts=parts, bits_per_part=bits)
    scheme.pack()
    theirs = faiss.ProductQuantizer(DIM, parts, bits)
    books = scheme.codebooks().view(2**bits, parts, DIM // parts).transpose(0, 1)
    faiss.copy_array_to_vector(books.contiguous().numpy().ravel(), theirs.centroids)
    assert np.array_equal(theirs.decode(scheme.codes.numpy()), scheme(torch.arange(ROWS)).numpy())
    # And they are the codes that faiss would have chosen (but for some that are as near).
    rows = torch.empty(ROWS, DIM).index_copy(0, IDS, table())
    assert (theirs.compute_codes(rows.numpy()) == scheme.codes.numpy()).mean() > 0.99


@pytest.mark.parametrize(("parts", "bits"), [(4, 8), (6, 4)])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_as_near_as_product_quantization_by_faiss(parts, bits, seed):
    rows = table(seed)
    theirs = faiss.ProductQuantizer(DIM, parts, bits)
    theirs.cp.min_points_per_centroid = 1
    theirs.train(rows.numpy())
    left = ((theirs.decode(theirs.compute_codes(rows.numpy())) - rows.numpy()) ** 2).sum()
    ours = error(fitted(rows, num_parts=parts, bits_per_part=bits), rows)
    assert ours < 1.08 * left  # k-means ends in one of many places


@pytest.mark.parametrize("seed", [0, 1])
def test_with_a_rotation_it_is_as_near_as_faiss_with_one_and_nearer_than_without(seed):
    rows = table(seed)
    theirs = faiss.OPQMatrix(DIM, 6)
    theirs.pq = faiss.ProductQuantizer(DIM, 6, 4)
    theirs.train(rows.numpy())
    turned = theirs.apply(rows.numpy())
    quantizer = faiss.ProductQuantizer(DIM, 6, 4)
    quantizer.train(turned)
    decoded = theirs.reverse_transform(quantizer.decode(quantizer.compute_codes(turned)))
    ours = error(fitted(rows, num_parts=6, bits_per_part=4, rotated=True), rows)
    assert ours < 1.03 * float(((decoded - rows.numpy()) ** 2).sum())
    assert ours < 0.7 * error(fitted(rows, num_parts=6, bits_per_part=4), rows)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("parts", [5, 7, 11])
def test_columns_need_not_divide_evenly(parts, rotated):
    rows = table()
    fewer, scheme = (fitted(rows, num_parts=count, bits_per_part=4, rotated=rotated) for count in (parts - 1, parts))
    assert sum(part_sizes(DIM, parts)) == DIM
    assert error(scheme, rows) < (1.02 if rotated else 1) * error(fewer, rows)  # a rotation is not always the best one


METRICS = {
    "stretched": torch.diag(torch.logspace(1, -1, DIM)),
    "mixed": normal(DIM, DIM, seed=3) * torch.logspace(1, -1, DIM),
    "wide": normal(DIM, 40, seed=3),
    "of less than full rank": normal(DIM, 5, seed=3) @ normal(5, DIM, seed=4),
}


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_metric_says_which_errors_matter(metric, rotated):
    rows, how = table(), {"num_parts": 4, "bits_per_part": 4, "rotated": rotated}
    told, untold = fitted(rows, metric=metric, **how), fitted(rows, **how)
    # Without a rotation, what the metric says of two parts together can't be used.
    assert error(told, rows, metric) < (0.9 if rotated else 1.01) * error(untold, rows, metric)


def test_without_a_rotation_a_metric_of_single_columns_is_used():
    rows, metric, how = table(), METRICS["stretched"], {"num_parts": 4, "bits_per_part": 4}
    told, untold = fitted(rows, metric=metric, **how), fitted(rows, **how)
    assert error(told, rows, metric) < 0.9 * error(untold, rows, metric)


@pytest.mark.parametrize("rotated", [False, True])
def test_rows_that_count_more_are_nearer(rotated):
    rows, how = table(), {"num_parts": 4, "bits_per_part": 4, "rotated": rotated}
    weights = torch.where(torch.arange(ROWS) < 100, 100.0, 1.0)
    told, untold = fitted(rows, weights=weights, **how), fitted(rows, **how)
    assert error(told, rows, weights=weights) < 0.9 * error(untold, rows, weights=weights)


def test_the_coordinates_of_a_metric_lead_there_and_back():
    for metric in METRICS.values():
        there, back = metric_roots(metric)
        torch.testing.assert_close(there @ back, torch.eye(DIM, dtype=torch.float64))
        square = metric.double() @ metric.double().mT
        torch.testing.assert_close(there @ there.mT / there.square().sum(), square / square.trace(), atol=1e-5, rtol=0)
    there, _ = metric_roots(METRICS["mixed"], torch.arange(DIM) // 3)
    assert not there[:3, 3:].any()


def test_an_id_without_a_row_gets_nearly_the_mean_row():
    rows = table()
    scheme = ProductQuantizedEmbedding(DIM, vocab_size=ROWS + 5, num_parts=6, bits_per_part=8)
    distil(rows, scheme)
    new = scheme(torch.arange(ROWS, ROWS + 5))
    assert torch.equal(new, new[:1].expand(5, DIM))
    assert (new[0] - rows.mean(0)).norm() < 0.3 * (rows - rows.mean(0)).norm(dim=-1).mean()


@pytest.mark.parametrize("rotated", [False, True])
def test_a_table_with_fewer_rows_than_a_codebook_is_kept(rotated):
    rows = table()[:40]
    scheme = ProductQuantizedEmbedding(DIM, vocab_size=40, num_parts=4, bits_per_part=8, rotated=rotated)
    assert distil(rows, scheme).unexplained < 1e-4


def test_equal_rows_and_rows_of_zeros_are_kept():
    for rows in (torch.zeros(50, DIM), table()[:1].expand(50, DIM)):
        scheme = ProductQuantizedEmbedding(DIM, vocab_size=50, num_parts=4, bits_per_part=4, rotated=True)
        distil(rows, scheme)
        torch.testing.assert_close(scheme(torch.arange(50)), rows, atol=0.01, rtol=0.001)


def test_codes_stay_and_codebooks_learn():
    scheme, rows = fitted(table(), num_parts=6, bits_per_part=4, rotated=True), table(5)
    before, codes = error(scheme, rows), scheme.codes.clone()
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        (scheme(IDS) - rows).square().mean().backward()
        optimizer.step()
    assert error(scheme, rows) < before
    assert torch.equal(scheme.codes, codes)


@pytest.mark.parametrize(
    ("budget", "vocab_size", "expected"),
    [
        ("1/4", 1_000_000, (31, 8, True)),  # codes of 32 bytes would leave nothing for codebooks
        ("33B/id", 1_000_000, (32, 8, True)),
        ("1/16", 1_000_000, (7, 8, True)),
        ("1/16", 6_040, (14, 4, True)),  # codebooks of 256 rows would take 2.7 bytes per id
        ("1/16", 500, (10, 4, False)),  # a rotation would take 4 bytes per id
        ("2B/id", 6_040, (2, 4, True)),
    ],
)
def test_parts_bits_and_rotation_follow_from_the_budget(budget, vocab_size, expected):
    scheme = ProductQuantizedEmbedding.from_budget(budget, embedding_dim=32, vocab_size=vocab_size)
    assert (scheme.num_parts, scheme.bits_per_part, scheme.rotated) == expected


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="bits_per_part is 6; it must be 4 or 8"):
        ProductQuantizedEmbedding(DIM, vocab_size=5, num_parts=2, bits_per_part=6)
    for parts in (0, DIM + 1):
        with pytest.raises(ValueError, match=f"num_parts is {parts}; it must lie in 1 … {DIM}"):
            ProductQuantizedEmbedding(DIM, vocab_size=5, num_parts=parts)


def test_without_faiss_the_fit_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "faiss":
            raise ImportError("no faiss here")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'tableless\[serve\]'"):
        fitted(table(), num_parts=4)

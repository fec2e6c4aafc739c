"""Benchmarks of coded rows: their memory, and the rival they stand beside."""

import sys

import faiss
import numpy as np
import pytest
from benchmarks.coded import _coding
from benchmarks.compress import _trained


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read as Linux tells it")
def test_the_memory_of_coding_is_not_hidden_by_that_of_the_imports():
    above = next(row for row in _coding(100_000, threads=1) if row.question.endswith("memory above the imports"))
    megabytes = float(above.reached.removesuffix(" MB"))
    assert megabytes > 100_000 * 8 / 1e6  # the codes alone
    assert megabytes < 500


@pytest.mark.parametrize(("parts", "bits"), [(12, 6), (6, 7), (24, 4)])
def test_the_rival_is_as_near_as_faiss_makes_it(parts, bits):
    scales = np.linspace(0.2, 3, 24, dtype=np.float32)
    points = np.random.default_rng(3).normal(size=(6_000, 24)).astype(np.float32) * scales
    theirs = faiss.ProductQuantizer(24, parts, bits)
    theirs.train(points)
    errors = [
        np.square(quantizer.decode(quantizer.compute_codes(points)) - points).mean()
        for quantizer in (_trained(points, parts, bits), theirs)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.03)

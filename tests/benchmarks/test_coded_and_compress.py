"""Benchmarks of coded rows: their memory, the rival they stand beside, and one section of the results by itself."""

import sys

import faiss
import numpy as np
import pytest
from benchmarks.__main__ import _replace
from benchmarks.coded import _coding
from benchmarks.compress import _trained
from benchmarks.measuring import Row


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read as Linux tells it")
def test_the_memory_of_coding_is_not_hidden_by_that_of_the_imports():
    above = next(row for row in _coding(100_000) if row.question.endswith("memory above the imports"))
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


@pytest.mark.parametrize("name", ["coded", "compress"])
def test_one_section_is_replaced_and_the_others_stay(name, tmp_path):
    results = tmp_path / "RESULTS.md"
    results.write_text(
        "# Results\n\nhead\n\n## coded.py\n\nold table\n\n## compress.py\n\nold table\n", encoding="utf-8"
    )
    _replace(results, name, [Row("how many?", "seven")])
    text = results.read_text(encoding="utf-8")
    assert text.startswith("# Results\n\nhead\n\n## coded.py\n\n")
    assert text.count("old table") == text.count("how many?") == text.count("measured by itself") == 1
    assert text.count("## ") == 2
    assert (text.index("how many?") > text.index("## compress.py")) == (name == "compress")
    _replace(results, name, [Row("how many?", "eight")])
    assert results.read_text(encoding="utf-8") == text.replace("seven", "eight")
    with pytest.raises(ValueError, match="has no section of serving"):
        _replace(results, "serving", [])

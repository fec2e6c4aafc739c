"""The rows that say what 8-bit products cost here: the same layer, by every way, for every number of rows."""

from benchmarks import inference


def test_the_products_of_a_layer_are_compared_with_float32_for_one_row_and_many():
    rows = inference._products_of_bytes(16, 1)
    assert [row.question for row in rows] == [
        f"8-bit products of a layer, 16 × 16, by {way}, batch {batch}, against float32"
        for batch in (1, 100, 256)
        for way in ("torch._int_mm", "oneDNN")
    ]
    assert all(row.reached.endswith(" ×") and float(row.reached.split()[0]) > 0 for row in rows)


def test_the_ways_that_are_timed_compute_the_same_product(monkeypatch):
    products = []
    monkeypatch.setattr(inference, "_often", lambda product: products.append(product()))
    monkeypatch.setattr(
        inference,
        "time_alternately",
        lambda tasks, repetitions: {name: [task() or 1.0] for name, task in tasks.items()},
    )
    inference._products_of_bytes(24, 1)
    assert len(products) == 9
    for number in range(0, 9, 3):
        floats, integers, packed = products[number : number + 3]
        assert integers.float().equal(floats)
        assert packed.equal(floats)

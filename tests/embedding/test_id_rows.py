"""Every id has a row of its own, found without a list of ids, and the format is the one that the module describes."""

import subprocess
import sys
from itertools import islice

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tableless import to_ids
from tableless.embedding.hashing import split_mix_64
from tableless.embedding.id_rows import IdRows, kernel_rows, torch_rows

EXTREMES = [0, 1, -1, 2**31, 2**32 - 1, 2**32, -(2**32), 2**63 - 1, -(2**63)]
WORD = 2**64 - 1

KINDS = {
    "consecutive": lambda count: torch.arange(count),
    "multiples of 2^20": lambda count: torch.arange(count) << 20,
    "negative": lambda count: -1 - 3 * torch.arange(count),
    "random 64-bit": lambda count: torch.from_numpy(
        np.random.default_rng(count).integers(-(2**63), 2**63, count, dtype=np.int64)
    ),
    "strings": lambda count: to_ids([f"user_{number}" for number in range(count)]),
}


def built(num_ids, ids, seed=0):
    rows = IdRows(num_ids, seed)
    rows.build(ids)
    return rows


def by_torch(rows, ids):
    return torch_rows(ids, *stored(rows))


def stored(rows):
    return rows.key, rows.cells, rows.ranks, rows.sizes


def strangers(count, seed=1):
    random = np.random.default_rng(seed).integers(-(2**63), 2**63, count, dtype=np.int64)
    return torch.cat([torch.tensor(EXTREMES), torch.from_numpy(random)])


def root(number, power):
    """The largest r with r^power ≤ number, found by trying."""
    r = int(number ** (1 / power)) + 2
    while r**power > number:
        r -= 1
    return r


def layout_by_description(n):
    """Segments, cells in each, words: the rules of the module's text, in Python's unbounded integers."""
    segments = 3 if n <= 1000 else root(n**3, 8)
    r = root(256 * n, 4)
    needed = min((6 * n + 4) // 5, ((1101 * r + 2720) * n + 1000 * r - 1) // (1000 * r))
    words = (segments * ((needed + segments - 1) // segments) + 31) // 32
    return segments, 32 * words // segments, words


def row_by_description(id_, key, cells, ranks, n):
    """The row of one id, cell by cell."""
    segments, length, _ = layout_by_description(n)
    z = (id_ ^ key) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    z ^= z >> 31
    s = ((z >> 32) * (4 * segments - 5)) >> 34
    one, other = ((z * 0x9E3779B97F4A7C15) & WORD) >> 32, ((z * 0xD1342543DE82EF95) & WORD) >> 32
    three = [
        s * length + (one * length >> 32),
        (s + 1) * length + ((z % 2**32) * length >> 32),
        (s + 2) % segments * length + (other * length >> 32),
    ]
    value = lambda cell: (cells[cell // 32] & WORD) >> (2 * (cell % 32)) & 3  # noqa: E731
    own = three[sum(map(value, three)) % 3]
    row = ranks[own // 256] + sum(value(cell) != 3 for cell in range(own // 256 * 256, own))
    return min(max(row, 0), n - 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 27, 100, 500, 1001, 6040, 100_000])
def test_every_id_has_a_row_of_its_own(kind, count):
    ids = KINDS[kind](count)
    rows = IdRows(max(count, 1))
    given = rows.build(ids)
    assert given.dtype == torch.int64
    assert torch.equal(given.sort().values, torch.arange(count))
    assert torch.equal(rows(ids.flip(0)), given.flip(0))
    assert torch.equal(by_torch(rows, ids), given)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60), st.integers(0, 2**64), st.integers(0, 5))
def test_any_small_set_of_ids_has_rows(values, seed, unused):
    ids = torch.tensor(list(values))
    rows = IdRows(len(ids) + unused, seed)
    given = rows.build(ids)
    assert sorted(given.tolist()) == list(range(len(ids)))
    assert torch.equal(rows(ids), given)
    assert torch.equal(by_torch(rows, ids), given)


def test_all_small_sizes_find_a_key():
    for count in range(1, 400):
        assert torch.equal(IdRows(count).build(torch.arange(count) * 977).sort().values, torch.arange(count)), count


@pytest.mark.parametrize("num_ids", [1, 3, 700, 3706, 20_000])
def test_ids_that_were_not_put_in_get_a_row_that_exists(num_ids):
    rows, ids = built(num_ids, KINDS["strings"](num_ids)), strangers(20_000)
    found = rows(ids)
    assert found.min() >= 0
    assert found.max() < num_ids
    assert torch.equal(found, by_torch(rows, ids))
    if num_ids <= 3706:
        assert len(found.unique()) > 0.9 * num_ids, "strangers should be spread over the rows"


def test_before_it_is_built_ids_are_spread_over_the_rows():
    rows, ids = IdRows(1000), strangers(500)
    found = rows(ids)
    assert torch.equal(found, by_torch(rows, ids))
    assert found.min() >= 0
    assert found.max() < 1000
    assert len(found.unique()) > len(ids) / 2


@pytest.mark.parametrize("count", [0, 1, 700, 4999, 5000])
def test_fewer_ids_than_there_is_room_for_get_the_first_rows(count):
    ids = KINDS["random 64-bit"](count)
    rows = IdRows(5000)
    assert torch.equal(rows.build(ids).sort().values, torch.arange(count))
    assert rows(strangers(2000)).max() < 5000


def test_building_again_forgets_the_ids_from_before():
    again, once = IdRows(300), IdRows(300)
    again.build(torch.arange(300))
    ids = KINDS["strings"](200)
    assert torch.equal(again.build(ids), once.build(ids))
    for name, value in once.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_the_seed_decides_which_rows_ids_get():
    ids = KINDS["consecutive"](2000)
    first, same, other = (IdRows(2000, seed).build(ids) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert (first == other).float().mean() < 0.01
    assert not torch.equal(IdRows(2000, -1).build(ids), other)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([5, 7, 9, 7], r"the id 7 is at position 1 and again at 3; .* ids\.unique\(\)"),
        ([-(2**63)] * 6, r"the id -9223372036854775808 is at position 0 and again at 1"),
        ([*range(100), 0], r"the id 0 is at position 0 and again at 100"),
        ([3] * 5000, r"the id 3 is at position 0 and again at 1"),
    ],
)
def test_an_id_that_is_there_twice_is_refused(ids, message):
    rows = IdRows(10_000)
    rows.build(torch.arange(50))
    with pytest.raises(ValueError, match=message):
        rows.build(torch.tensor(ids))
    assert torch.equal(rows(torch.arange(50)).sort().values, torch.arange(50)), "what was built before is still there"


def test_more_ids_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match=r"4 ids are more than num_ids=3; make an IdRows\(4\)"):
        IdRows(3).build(torch.arange(4))


@pytest.mark.parametrize("num_ids", [0, -1, 2**31])
def test_impossible_sizes_are_refused(num_ids):
    with pytest.raises(ValueError, match=rf"num_ids is {num_ids}; it must lie in \[1, 2\^31 - 1\]"):
        IdRows(num_ids)


def test_a_search_for_a_key_that_can_not_succeed_ends(monkeypatch):
    from tableless.kernels import id_rows as loops

    monkeypatch.setattr(loops, "peel", lambda *_: False)
    with pytest.raises(RuntimeError, match="no key was found for 20 ids with seed 3; give IdRows another seed"):
        IdRows(1_000_000, seed=3).build(torch.arange(20))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3), (2, 0), (2, 3, 4)])
def test_any_shape_of_ids_gives_rows_of_the_same_shape(shape):
    rows = built(50, torch.arange(50))
    ids = torch.full(shape, 7)
    for found in (rows(ids), rows(ids.int()), by_torch(rows, ids)):
        assert found.shape == shape
        assert found.dtype == torch.int64
        assert (found == rows(torch.tensor(7))).all()


def test_ids_need_not_be_contiguous_and_may_have_32_bits_when_it_is_built():
    ids = torch.arange(20, dtype=torch.int32).view(4, 5).T
    rows = IdRows(20)
    given = rows.build(ids)
    assert given.shape == (5, 4)
    assert torch.equal(rows(ids), given)
    assert torch.equal(rows(torch.arange(20)).view(4, 5).T, given)


def test_ids_that_are_no_integers_are_refused():
    for call in (IdRows(3), IdRows(3).build):
        with pytest.raises(TypeError, match=r"ids are of type torch.float32; .* int32 or int64"):
            call(torch.tensor([1.7]))


INTEGERS = [0, 1, 7, -1, 2**31, 2**32, 2**63 - 1, -(2**63), 1234567890123456789]
STRINGS = ["", "7", "user_42", "東京", "a" * 300]
GOLDEN_ROWS = {  # by the number of ids, for the state below
    20: [2, 5, 10, 14, 19, 10, 8, 15, 19, 8, 3, 19, 10, 13],
    1000: [434, 177, 237, 194, 235, 83, 79, 855, 868, 799, 679, 361, 291, 593],
    3706: [1362, 507, 180, 348, 2607, 1746, 2364, 2145, 710, 2141, 3037, 2152, 3028, 536],
    100_000: [52590, 63494, 20768, 10793, 55866, 65192, 69567, 76403, 56937, 26699, 77485, 73895, 51162, 32233],
}


@pytest.mark.parametrize("num_ids", GOLDEN_ROWS)
def test_a_saved_state_answers_as_it_did(num_ids):
    """Cells and key are numbers from SplitMix64, so that nothing here depends on how a state is built."""
    rows = IdRows(num_ids)
    *words, key = np.array([*islice(split_mix_64(num_ids), len(rows.cells) + 1)], np.uint64).view(np.int64).tolist()
    owned = [sum((word >> 2 * cell) & 3 != 3 for cell in range(32)) for word in words]
    ranks = [sum(owned[: 8 * block]) for block in range(len(rows.ranks))]
    rows.load_state_dict({"cells": torch.tensor(words), "ranks": torch.tensor(ranks), "key": torch.tensor(key)})
    ids = torch.cat([to_ids(INTEGERS), to_ids(STRINGS)])
    assert rows(ids).tolist() == GOLDEN_ROWS[num_ids]
    assert by_torch(rows, ids).tolist() == GOLDEN_ROWS[num_ids]


@pytest.mark.parametrize(
    ("raw", "seed", "key", "cells", "expected"),
    [
        (INTEGERS, 0, 7960286522194355700, -847098944658898945, [0, 5, 3, 7, 1, 6, 4, 2, 8]),
        (STRINGS, 1, -7995527694508729151, -13724104137900293, [0, 2, 3, 1, 4]),
    ],
)
def test_the_same_ids_and_seed_give_the_same_state_as_ever(raw, seed, key, cells, expected):
    rows = IdRows(len(raw), seed)
    assert rows.build(to_ids(raw)).tolist() == expected
    assert {name: value.tolist() for name, value in rows.state_dict().items()} == {
        "cells": [cells],
        "ranks": [0],
        "key": key,
    }


@pytest.mark.parametrize("num_ids", [1, 2, 26, 500, 1000, 1001, 4096, 20_000])
def test_the_format_is_the_one_that_is_described(num_ids):
    rows = built(num_ids, KINDS["strings"](num_ids), seed=5)
    assert (rows.num_segments, rows.segment_length, len(rows.cells)) == layout_by_description(num_ids)
    asked = torch.cat([KINDS["strings"](min(num_ids, 300)), strangers(300)])
    parts = rows.key.item(), rows.cells.tolist(), rows.ranks.tolist()
    assert rows(asked).tolist() == [row_by_description(id_, *parts, num_ids) for id_ in asked.tolist()]


@pytest.mark.parametrize("num_ids", [1, 999, 1000, 1001, 38_093, 10**6, 10**7, 10**8 + 7, 2**31 - 1])
def test_sizes_follow_from_the_number_of_ids_alone(num_ids):
    with torch.device("meta"):
        rows = IdRows(num_ids)
    segments, length, words = layout_by_description(num_ids)
    assert (rows.num_segments, rows.segment_length) == (segments, length)
    assert {name: (value.dtype, tuple(value.shape)) for name, value in rows.state_dict().items()} == {
        "cells": (torch.int64, (words,)),
        "ranks": (torch.int32, ((words + 7) // 8,)),
        "key": (torch.int64, ()),
    }
    assert rows.num_bytes == 8 * words + 4 * ((words + 7) // 8) + 8
    if num_ids > 1000:
        assert rows.num_bytes / num_ids < 0.335
    assert rows(torch.empty(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 5, 300, 1001, 3706]), st.sampled_from(["random", "ones", "zeros"]))
def test_whatever_a_file_holds_rows_stay_in_range_and_both_ways_agree(seed, num_ids, content):
    rows = IdRows(num_ids)
    random = np.random.default_rng(seed)
    for buffer in rows.buffers():
        fill = {"random": random.bytes(buffer.nbytes), "ones": b"\xff" * buffer.nbytes, "zeros": bytes(buffer.nbytes)}
        content_of = np.frombuffer(fill[content], buffer.numpy().dtype).reshape(buffer.shape)
        buffer.copy_(torch.from_numpy(content_of.copy()))
    found = rows(strangers(500, seed))
    assert found.min() >= 0
    assert found.max() < num_ids
    assert torch.equal(found, by_torch(rows, strangers(500, seed)))


@pytest.mark.parametrize("name", ["cells", "ranks"])
def test_a_truncated_state_is_refused(name):
    rows = built(3706, torch.arange(3706))
    short = rows.state_dict() | {name: rows.state_dict()[name][:-1]}
    with pytest.raises(RuntimeError, match=f"size mismatch for {name}"):
        IdRows(3706).load_state_dict(short)
    rows.register_buffer(name, short[name])  # past torch's own check
    with pytest.raises(ValueError, match="there are too few cells or ranks for this number of ids"):
        rows(torch.arange(5))


def test_the_state_answers_the_same_in_another_process(tmp_path):
    ids = KINDS["random 64-bit"](3706)
    rows = built(3706, ids, seed=4)
    save_file(rows.state_dict(), tmp_path / "rows.safetensors")
    save_file({"ids": torch.cat([ids, strangers(1000)])}, tmp_path / "ids.safetensors")
    program = (
        "import sys; from safetensors.torch import load_file, save_file\n"
        "from tableless.embedding.id_rows import IdRows\n"
        "rows = IdRows(3706); rows.load_state_dict(load_file(sys.argv[1] + '/rows.safetensors'))\n"
        "found = rows(load_file(sys.argv[1] + '/ids.safetensors')['ids'])\n"
        "save_file({'found': found, **rows.state_dict()}, sys.argv[1] + '/found.safetensors')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    there = load_file(tmp_path / "found.safetensors")
    assert torch.equal(there["found"], rows(torch.cat([ids, strangers(1000)])))
    for name, value in rows.state_dict().items():
        assert torch.equal(there[name], value), name


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("num_ids", [27, 3706])
def test_onnx_agrees_to_the_bit(num_ids, tmp_path):
    ids = KINDS["random 64-bit"](num_ids)
    rows, path = built(num_ids, ids).eval(), tmp_path / "rows.onnx"
    torch.onnx.export(
        rows,
        (torch.arange(5),),
        path,
        dynamo=True,
        input_names=["ids"],
        dynamic_shapes={"ids": {0: torch.export.Dim.DYNAMIC}},
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (ids, strangers(3000), ids[:1], ids[:0]):
        (found,) = session.run(None, {"ids": batch.numpy()})
        np.testing.assert_array_equal(found, rows(batch).numpy())


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_it_compiles_without_a_graph_break_exports_plain_operations_and_can_be_traced():
    ids = KINDS["strings"](500)
    rows, asked = built(500, ids), torch.cat([ids, strangers(100)])
    compiled = torch.compile(rows, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(asked), rows(asked))
    exported = torch.export.export(rows, (asked,), dynamic_shapes={"ids": {0: torch.export.Dim.AUTO}})
    assert "tableless" not in str(exported.graph), "an exported program must not need this library"
    assert torch.equal(exported.module()(asked[:4]), rows(asked[:4]))
    traced = torch.jit.trace(rows, asked)
    assert torch.equal(traced(asked[5:9]), rows(asked[5:9]))
    torch.library.opcheck(kernel_rows, (asked, *stored(rows)))

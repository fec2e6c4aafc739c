"""`compress`: vectors in every format become a scheme that answers by raw id, and it says truly what is lost."""

import json
import math

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from tableless import SCHEMES, cli, compress, load_scheme, replace_embeddings, to_ids
from tableless.files.vector_rows import measure_losses

WORDS = ["", "king", "queen", "naïve", "7", "東京", "new york", *(f"word{i}" for i in range(0, 3000, 3))]
DIM = 12


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(1)
    return (random.normal(size=(len(WORDS), 4)) @ random.normal(size=(4, DIM))).astype(np.float32)


@pytest.fixture(scope="module")
def small(rows):
    return compress(rows, "8B/id", ids=WORDS)


def decoded_by(table):
    return lambda part: table[part]


def test_it_answers_by_raw_id_and_the_losses_are_those_of_its_answers(rows, small):
    vectors = small.vectors(WORDS)
    assert torch.equal(small["queen"], vectors[2])
    cosines = torch.cosine_similarity(vectors, torch.from_numpy(rows))
    assert small.losses.mean_cosine == pytest.approx(cosines.mean().item(), abs=1e-5)
    assert small.losses.mean_cosine > 0.9
    assert small.bytes <= 8 * len(WORDS)
    assert small.bytes_per_id == small.bytes / len(WORDS)
    assert small.bytes_before == rows.nbytes


def test_integers_with_gaps_in_any_order_are_ids(rows):
    numbers = np.random.default_rng(0).permutation(10**6)[: len(rows)] * 7 - 10**6
    by_number = compress(rows, "8B/id", ids=numbers)
    assert by_number.losses.mean_cosine > 0.9
    assert torch.equal(by_number[int(numbers[5])], by_number.vectors(numbers)[5])
    with pytest.raises(ValueError, match="7 and '7' are different ids"):
        by_number["7"]


def test_the_order_of_the_rows_does_not_matter(rows, small):
    order = np.random.default_rng(3).permutation(len(rows))
    other = compress(rows[order], "8B/id", ids=[WORDS[i] for i in order])
    assert torch.equal(other.vectors(WORDS), small.vectors(WORDS))


def test_check_bits_notice_ids_that_were_not_put_in(rows):
    checked = compress(rows, "8B/id", ids=WORDS, check_bits=8)
    others = checked.vectors([f"other{i}" for i in range(1000)])
    mean = torch.from_numpy(rows.astype(np.float64).mean(0)).float()
    assert (others - mean).abs().amax(-1).lt(1e-5).float().mean() > 0.97
    with pytest.raises(ValueError, match="no check bits"):
        compress(rows, "1/2", ids=WORDS, scheme="dhe", check_bits=8)


def test_what_is_saved_is_two_files_that_answer_the_same(small, tmp_path):
    small.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]
    assert torch.equal(load_scheme(tmp_path / "out")(to_ids(WORDS)), small.vectors(WORDS))


def test_a_damaged_directory_is_refused(small, tmp_path):
    small.save(tmp_path)
    weights = tmp_path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-9] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        load_scheme(tmp_path)
    weights.write_bytes(content[:-100])
    with pytest.raises(ValueError, match="cut short"):
        load_scheme(tmp_path)


def test_losses_worked_out_by_hand():
    """Three vectors at 0, 90 and 45 degrees; decoded, the second and the third have changed places."""
    exact = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    losses = measure_losses(exact, decoded_by(exact[[0, 2, 1]]))
    assert losses.mean_cosine == pytest.approx((1 + 2 * math.sqrt(0.5)) / 3)
    assert losses.recall_at_10 == losses.recall_at_10_exact_queries == 1, "there are only two neighbours"
    # Inner products 0, 2, 2 become 2, 0, 2; pairs are drawn, so that it is only nearly sqrt(8 / 8).
    assert losses.inner_product_error == pytest.approx(1, abs=0.05)


def test_recall_is_the_share_of_neighbours_that_a_slow_search_finds():
    random = torch.Generator().manual_seed(0)
    exact = torch.randn(300, 6, generator=random)
    near = exact + 0.4 * torch.randn(300, 6, generator=random)

    def neighbours(queries, among):
        cosines = torch.cosine_similarity(queries.unsqueeze(1), among.unsqueeze(0), dim=-1).fill_diagonal_(-2)
        return [set(row.tolist()) for row in cosines.argsort(descending=True)[:, :10]]

    wanted = neighbours(exact, exact)
    losses = measure_losses(exact, decoded_by(near))
    for queries, measured in ((near, losses.recall_at_10), (exact, losses.recall_at_10_exact_queries)):
        found = neighbours(queries, near)
        shares = [len(a & b) / 10 for a, b in zip(wanted, found, strict=True)]
        assert measured == pytest.approx(sum(shares) / 300, abs=1e-9)
        assert 0.1 < measured < 0.95


def write(kind, folder, rows):
    """The vectors in a file of a format; its path, the options that say where the ids are, and the ids."""
    path, words = folder / f"vectors.{kind.partition(' ')[0]}", WORDS
    names = folder / "names.txt"
    names.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    options = {}
    if kind == "npy":
        np.save(path, rows)
        options = {"ids": str(names)}
    elif kind == "npy numbered":
        np.save(path, np.asfortranarray(rows.astype(np.float64)))
        words = list(range(len(rows)))
    elif kind == "safetensors":
        save_file({"bias": torch.ones(3), "a": torch.ones(2, 2), "table": torch.from_numpy(rows)}, path)
        options = {"ids": str(names), "vectors": "table"}
    elif kind == "parquet":
        pl.DataFrame({"n": range(len(rows)), "name": WORDS, "vector": rows.tolist()}).write_parquet(path)
        options = {"ids": "name"}
    elif kind == "parquet wide":
        pl.DataFrame({"word": WORDS, **{f"x{j}": rows[:, j] for j in range(DIM)}}).write_parquet(path)
    elif kind == "bin":
        words = [word.replace(" ", "_") for word in WORDS]
        parts = [word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(words, rows, strict=True)]
        path.write_bytes(f"{len(rows)} {DIM}\n".encode() + b"".join(parts))
    else:
        words = ["</s>", *WORDS[1:]]
        lines = [f"{word} {' '.join(map(repr, row.tolist()))}" for word, row in zip(words, rows, strict=True)]
        head = [f"{len(rows)} {DIM}"] if kind == "vec" else []
        path.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
    return path, options, words


@pytest.mark.parametrize("kind", ["npy", "npy numbered", "safetensors", "parquet", "parquet wide", "bin", "vec", "txt"])
def test_every_format_is_read(kind, tmp_path, rows):
    path, options, words = write(kind, tmp_path, rows)
    result = compress(path, "8B/id", **options)
    expected = compress(rows, "8B/id", ids=words)
    assert torch.equal(result.vectors(words), expected.vectors(words))
    assert result.bytes_before == rows.size * (8 if kind in ("npy numbered", "parquet") else 4)  # these have float64


def test_mapped_arrays_half_floats_and_tables_of_models_are_taken(rows, tmp_path, small):
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert torch.equal(compress(mapped, "8B/id", ids=WORDS)["king"], small["king"])
    table = torch.nn.Embedding.from_pretrained(torch.from_numpy(rows))
    assert torch.equal(compress(table, "8B/id", ids=WORDS)["king"], small["king"])
    half = compress(torch.from_numpy(rows).bfloat16(), "8B/id", ids=WORDS)
    assert half.bytes_before == rows.nbytes // 2
    assert half.losses.mean_cosine > 0.9


def test_mistakes_are_told_in_plain_words(rows, tmp_path):
    def refused(message, table=rows, budget="8B/id", **options):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            compress(table, budget, **options)

    text = tmp_path / "words.txt"
    text.write_text("a 1 2\nb 3 4\nc 5\n")
    refused("line 3 has 1 numbers", text)
    text.write_text("a 1 2\nb 3 4 5\nc 5 6\n")
    refused("line 2 has 3 numbers", text)
    text.write_text("a 1 2\nb 3 x\n")
    refused("'x' in line 2 is no number", text)
    text.write_text("5 2\na 1 2\nb 3 4\n")
    refused("promises 5 words and has 2", text)
    (tmp_path / "cut.bin").write_bytes(b"2 2\na 12345678b 123")
    refused("ends in number 2: it is cut short", tmp_path / "cut.bin")
    pl.DataFrame({"id": ["a", "b"], "v": [[1.0, 2.0], [3.0]]}).write_parquet(tmp_path / "ragged.parquet")
    refused("row 1 has 1 numbers", tmp_path / "ragged.parquet")
    refused("no known kind; known are .npy", tmp_path / "vectors.pickle")
    refused("there is no file", tmp_path / "none.npy")
    refused(r"the id 'king' is in row 1 and again in row 4", ids=[*WORDS[:4], "king", *WORDS[5:]])
    refused("1006 ids and 1007 vectors", ids=WORDS[1:])
    broken = rows.copy()
    broken[3, 2] = np.nan
    refused("the vector of 'naïve', row 3, has a number that is NaN", broken, ids=WORDS)
    refused("take no more than 48,336 as they are", budget="48B/id")
    refused("is too small; the smallest possible", budget="40B")
    refused("no scheme is called 'codet'.*did you mean 'coded'", scheme="codet")
    refused("'full' finds rows by their numbers", ids=WORDS, scheme="full", budget="1/2")
    refused("two dimensions", rows[0])


def test_the_command_writes_what_the_function_gives(rows, tmp_path, small):
    path, options, _ = write("npy", tmp_path, rows)
    arguments = ["compress", str(path), "--budget", "8B/id", "--ids", options["ids"], "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(cli.app, arguments)
    assert told.exit_code == 0, told.output
    assert f"1,007 vectors of {DIM} numbers: 48.3 KB →" in told.stdout
    assert "load_scheme" in told.stdout
    assert torch.equal(load_scheme(tmp_path / "out")(to_ids(WORDS)), small.vectors(WORDS))
    line = json.loads(CliRunner().invoke(cli.app, [*arguments, "--json"]).stdout.splitlines()[-1])
    assert line["bytes"] == small.bytes
    assert line["recall_at_10"] == small.losses.recall_at_10


def test_correlated_rows_are_turned_and_coded_far_better():
    random = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(32, 32, generator=random))[0]
    correlated = torch.randn(6000, 32, generator=random) * 0.75 ** torch.arange(32) @ turn
    kind = SCHEMES["coded"]
    assert kind.from_budget("8B/id", embedding_dim=32, vocab_size=10**6).config["rotated"], "large tables always"
    assert kind.for_rows("4B/id", correlated).config["rotated"]
    assert not kind.for_rows("4B/id", torch.randn(6000, 32, generator=random)).config["rotated"]
    model = torch.nn.ModuleDict({"table": torch.nn.Embedding.from_pretrained(correlated.contiguous())})
    (replaced,) = replace_embeddings(model, budget="4B/id", scheme="coded", min_rows=10)
    plain = kind.from_budget("4B/id", embedding_dim=32, vocab_size=6000, rotated=False)
    plain.fit_directly(torch.arange(6000), correlated, metric=torch.eye(32), weights=torch.ones(6000))
    with torch.no_grad():
        lost = ((plain(torch.arange(6000)) - correlated).square().sum() / correlated.square().sum()).item()
    assert replaced.unexplained < 0.5 * lost

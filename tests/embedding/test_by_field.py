"""One table for many fields, which each have a range of its rows."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from tableless import load_replaced, replace_embeddings, save_replaced, tune
from tableless.embedding.by_field import EmbeddingByField

# Tables of noise are a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

SIZES, DIM = [400, 7, 300, 3], 8


class Features(nn.Module):
    """As torchfm and RecBole have it: ids of each field from 0 on, and an offset for each field."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(sum(SIZES), DIM)
        self.offsets = np.array((0, *np.cumsum(SIZES)[:-1]))

    def forward(self, x):
        return self.embedding(x + x.new_tensor(self.offsets).unsqueeze(0))


class Click(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.head = nn.Linear(DIM * len(SIZES), 1)

    def forward(self, x):
        return self.head(self.features(x).flatten(1)).squeeze(-1)


def click(seed=0):
    torch.manual_seed(seed)
    return Click()


def inputs(size=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(0, high, (size,), generator=generator) for high in SIZES], -1)


FIELDS = {"features.embedding": SIZES}


@pytest.mark.parametrize("scheme", ["auto", "coded", "low-rank", "dhe"])
def test_each_large_field_has_a_scheme_and_small_ones_keep_their_rows(scheme):
    model = click()
    before = copy.deepcopy(model)
    (entry,) = replace_embeddings(model, "1/2", scheme=scheme, min_rows=100, fields=FIELDS, visits=20)
    own = model.features.embedding.scheme
    kinds = [type(part).__name__ for part in own.parts]
    name = {"auto": "QuantizedEmbedding", "coded": "CodedEmbedding", "low-rank": "LowRankEmbedding"}.get(scheme)
    assert kinds == [name or "DeepHashEmbedding", "FullEmbedding", name or "DeepHashEmbedding", "FullEmbedding"]
    ids, rows = torch.arange(sum(SIZES)), before.features.embedding.weight.detach()
    vectors = model.features.embedding(ids).detach()
    for start, size in ((400, 7), (707, 3)):
        assert torch.equal(vectors[start : start + size], rows[start : start + size])
    for part, start, size in ((own.parts[0], 0, 400), (own.parts[2], 407, 300)):
        assert torch.equal(vectors[start : start + size], part(torch.arange(size)).detach())
    lost = float((vectors - rows).square().sum() / (rows - rows.mean(0)).square().sum())
    assert entry.unexplained == pytest.approx(lost, rel=1e-3)
    assert entry.bytes_after == sum(part.num_bytes for part in own.parts)
    assert model(inputs()).shape == (50,)
    model(inputs()).sum().backward()
    assert all(parameter.grad is not None for parameter in own.parts[0].parameters())


def test_without_sizes_one_scheme_stands_for_all_fields():
    model = click()
    (entry,) = replace_embeddings(model, "1/2", scheme="low-rank", min_rows=100)
    assert type(model.features.embedding.scheme).__name__ == "LowRankEmbedding"
    assert entry.rows == sum(SIZES)


def test_a_budget_of_memory_is_for_the_large_fields():
    model = click()
    replace_embeddings(model, "7KB", scheme="bloom", min_rows=100, fields=FIELDS)
    parts = model.features.embedding.scheme.parts
    assert [parts[0].num_bytes / 4000, parts[2].num_bytes / 3000] == pytest.approx([1, 1], abs=0.06)
    assert parts[0].num_bytes + parts[2].num_bytes <= 7000


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0,)])
def test_any_shape_of_ids_and_no_id_beyond_the_table(shape):
    model = click()
    replace_embeddings(model, "1/2", scheme="low-rank", min_rows=100, fields=FIELDS)
    table = model.features.embedding
    assert table(torch.randint(0, sum(SIZES), shape)).shape == (*shape, DIM)
    for wrong in (-1, sum(SIZES)):
        with pytest.raises(IndexError, match=f"id {wrong} has no row"):
            table(torch.tensor([3, wrong]))


@pytest.mark.parametrize("scheme", ["auto", "low-rank", "quantized", "dhe"])
def test_it_is_saved_and_loaded(scheme, tmp_path):
    model = click()
    replace_embeddings(model, "1/2", scheme=scheme, min_rows=100, fields=FIELDS, visits=5)
    save_replaced(model, tmp_path)
    loaded = load_replaced(click(seed=1), tmp_path)
    assert torch.equal(loaded.eval()(inputs()), model.eval()(inputs()))
    own = loaded.features.embedding.scheme
    assert own.config == model.features.embedding.scheme.stored().config
    assert own.num_bytes == model.features.embedding.scheme.num_bytes
    own.unpack()
    torch.testing.assert_close(loaded(inputs()), model(inputs()))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda fields: fields[0].update(scheme="nonsense"), "no scheme is called 'nonsense'"),
        (lambda fields: fields[0]["arguments"].update(rank=1.5), "rank is 1.5; it must be int"),
        (lambda fields: fields[0]["arguments"].update(rank=10**9), "lacks|has in another shape|do not belong"),
        (lambda fields: fields.pop(), "in another shape|has, and the model has not|lacks"),
        (lambda fields: fields[0].pop("rows"), "'rows' is missing|does not describe replaced tables"),
        (lambda fields: fields.__setitem__(0, 3), "does not describe replaced tables"),
    ],
)
def test_a_plan_that_was_changed_is_refused(change, match, tmp_path):
    model = click()
    replace_embeddings(model, "1/2", scheme="low-rank", min_rows=100, fields=FIELDS)
    save_replaced(model, tmp_path)
    plan = json.loads((tmp_path / "replaced.json").read_text())
    change(plan["tables"][0]["scheme"]["arguments"]["fields"])
    (tmp_path / "replaced.json").write_text(json.dumps(plan))
    fresh = click(seed=1)
    with pytest.raises(ValueError, match=match):
        load_replaced(fresh, tmp_path)
    assert type(fresh.features.embedding) is nn.Embedding


def test_it_can_be_tuned_copied_and_exported():
    model = click()
    before = copy.deepcopy(model)
    replace_embeddings(model, "1/4", scheme="low-rank", min_rows=100, fields=FIELDS)
    done = tune(model, before, [inputs(seed=seed) for seed in range(5)], epochs=8, learning_rate=0.03)
    assert done.losses[-1] < 0.8 * done.losses[0]
    assert torch.equal(copy.deepcopy(model).eval()(inputs()), model.eval()(inputs()))
    program = torch.export.export(model.features.embedding, (inputs(),))
    torch.testing.assert_close(program.module()(inputs(seed=3)), model.features.embedding(inputs(seed=3)))


def test_networks_of_fields_are_tuned_and_rounded():
    model = click()
    before = copy.deepcopy(model)
    replace_embeddings(model, "1/2", scheme="dhe", min_rows=100, fields=FIELDS, visits=20)
    tune(model, before, [inputs(seed=seed) for seed in range(3)], epochs=2)
    answers = model.eval()(inputs()).detach()
    model.features.embedding.scheme.pack()
    torch.testing.assert_close(model(inputs()), answers)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"features.embeding": SIZES}, "no table of that name is replaced; did you mean 'features.embedding'"),
        ({"features.embedding": SIZES[:-1]}, "have 707 rows together, each at least 1; the table has 710"),
        ({"features.embedding": [0, 400, 407, 707]}, "Give the number of rows of each field, not where it begins"),
        ({"features.embedding": [710, 0]}, "each at least 1"),
        ({"features.embedding": [71] * 10}, "no field of 'features.embedding' has min_rows=100 rows"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields, match):
    model = click()
    with pytest.raises(ValueError, match=match):
        replace_embeddings(model, min_rows=100, fields=fields)
    assert type(model.features.embedding) is nn.Embedding


def test_a_budget_too_small_names_the_field_and_no_scheme_is_built_without_sizes():
    with pytest.raises(ValueError, match=r"'features.embedding': field 0 of 400 rows: a budget of .* is too small"):
        replace_embeddings(click(), "1/1000", scheme="low-rank", min_rows=100, fields=FIELDS)
    with pytest.raises(TypeError, match="needs the sizes of the fields"):
        EmbeddingByField.from_budget("1/2", embedding_dim=8, vocab_size=10)

"""Output layers that have a table as their weight: language models, and recommenders that score all items."""

import copy

import pytest
import torch
from torch import nn

from tableless import load_replaced, replace_embeddings, save_replaced, tune
from tableless.embedding.drop_in import DropInEmbedding, DropInLinear

# Tables of noise are a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 300, 8


class Language(nn.Module):
    """The next of some ids, by a head that is tied to the table."""

    def __init__(self, bias=True, head_first=False):
        super().__init__()
        if head_first:
            self.head = nn.Linear(DIM, ROWS, bias=bias)
        self.ids = nn.Embedding(ROWS, DIM, padding_idx=0)
        self.mix = nn.Linear(DIM, DIM)
        if not head_first:
            self.head = nn.Linear(DIM, ROWS, bias=bias)
        self.head.weight = self.ids.weight

    def forward(self, ids):
        return self.head(self.mix(self.ids(ids)).mean(-2))


def language(seed=0, **options):
    torch.manual_seed(seed)
    return Language(**options)


IDS = torch.tensor([[5, 299, 5], [0, 17, 1]])


@pytest.mark.parametrize("scheme", ["full", "coded", "quantized", "low-rank", "dhe"])
@pytest.mark.parametrize("head_first", [True, False])
def test_table_and_output_layer_share_one_scheme(scheme, head_first):
    model = language(head_first=head_first)
    before = copy.deepcopy(model).eval()
    (entry,) = replace_embeddings(model, "1/1", scheme=scheme, min_rows=100, visits=20)
    assert entry.names == ("ids", "head")
    assert (entry.rows, entry.embedding_dim) == (ROWS, DIM)
    assert (type(model.ids), type(model.head)) == (DropInEmbedding, DropInLinear)
    assert model.ids.scheme is model.head.scheme
    model.eval()
    if scheme == "full":
        torch.testing.assert_close(model(IDS), before(IDS))
    every = model.ids.scheme(torch.arange(ROWS))
    hidden = torch.randn(4, DIM)
    torch.testing.assert_close(model.head(hidden), hidden @ every.mT + before.head.bias)


@pytest.mark.parametrize("scheme", ["low-rank", "dhe"])
def test_gradients_reach_the_scheme_by_both_ways(scheme):
    model = language()
    replace_embeddings(model, "1/1", scheme=scheme, min_rows=100, distil=False)
    alone = copy.deepcopy(model)
    hidden, wanted = torch.randn(4, DIM), torch.tensor([3, 9, 200, 1])
    nn.functional.cross_entropy(model.head(hidden), wanted).backward()
    rows = alone.ids.scheme(torch.arange(ROWS))
    nn.functional.cross_entropy(hidden @ rows.mT + alone.head.bias, wanted).backward()
    for own, other in zip(model.ids.scheme.parameters(), alone.ids.scheme.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    assert model.head.bias.grad is not None
    one = [parameter.grad.clone() for parameter in model.ids.scheme.parameters()]
    model.ids(IDS).sum().backward()
    assert any(not torch.equal(old, own.grad) for old, own in zip(one, model.ids.scheme.parameters(), strict=True))


def test_the_vectors_of_all_ids_are_computed_once_for_a_step_and_kept_in_eval_mode():
    model = language()
    replace_embeddings(model, "1/1", scheme="dhe", min_rows=100, distil=False)
    counts = []
    model.ids.scheme.register_forward_pre_hook(lambda module, args: counts.append(args[0].numel()))
    model(IDS)
    assert counts == [5, ROWS]
    counts.clear()
    model.eval()
    with torch.no_grad():
        first, second = model(IDS), model(IDS)
    assert counts == [5, ROWS, 5]
    assert torch.equal(first, second)


def test_it_is_saved_and_loaded(tmp_path):
    model = language()
    replace_embeddings(model, "1/2", scheme="low-rank", min_rows=100)
    save_replaced(model, tmp_path)
    loaded = load_replaced(language(seed=1), tmp_path)
    assert loaded.ids.scheme is loaded.head.scheme
    loaded.eval(), model.eval()
    assert torch.equal(loaded(IDS), model(IDS))
    other = language(seed=1)
    other.head = nn.Identity()
    with pytest.raises(ValueError, match=r"has a table at 'head'; the model given has a Identity there"):
        load_replaced(other, tmp_path)
    no_bias = language(seed=1, bias=False)
    with pytest.raises(ValueError, match=r"and the model has not, head.bias"):
        load_replaced(no_bias, tmp_path)
    apart = language(seed=1)
    apart.head = nn.Linear(DIM, ROWS)
    with pytest.raises(ValueError, match=r"has a table at 'head'; the model given has a Linear there"):
        load_replaced(apart, tmp_path)


def test_it_can_be_tuned_and_its_bias_stays_one_with_that_of_the_model():
    model = language()
    model.bias = model.head.bias
    before = copy.deepcopy(model)
    replace_embeddings(model, "1/4", scheme="low-rank", min_rows=100)
    assert model.bias is model.head.bias
    batches = [torch.randint(ROWS, (16, 4)) for _ in range(5)]
    done = tune(model, before, batches, kind="softmax", epochs=8, learning_rate=0.03)
    assert done.losses[-1] < 0.9 * done.losses[0]


def test_an_output_layer_with_a_forward_of_its_own_or_hooks_is_refused():
    class Scaled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    model = language()
    model.head = Scaled(DIM, ROWS)
    model.head.weight = model.ids.weight
    with pytest.raises(ValueError, match=r"table of 'ids' is also a weight of 'head' \(Scaled\), where it would stay"):
        replace_embeddings(model, min_rows=100)
    model = language()
    model.head.register_forward_hook(lambda module, args, output: 2 * output)
    with pytest.raises(ValueError, match=r"is also a weight of 'head' \(Linear\)"):
        replace_embeddings(model, min_rows=100)


def test_half_precision_and_export():
    model = language().to(torch.bfloat16)
    replace_embeddings(model, "1/1", scheme="low-rank", min_rows=100)
    assert model(IDS).dtype == torch.bfloat16
    model = language()
    replace_embeddings(model, "1/1", scheme="low-rank", min_rows=100)
    model.eval()
    program = torch.export.export(model, (IDS,))
    torch.testing.assert_close(program.module()(IDS), model(IDS))

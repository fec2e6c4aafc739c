"""Tables that are bare parameters, which the code of a model uses as it likes."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tableless import load_replaced, replace_embeddings, save_replaced, tune

# Tables of noise are a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 300, 8
IDS = torch.tensor([[5, 299, 5], [0, 17, 1]])


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Parameter(torch.randn(ROWS, DIM))
        self.lists = nn.ParameterList([nn.Parameter(torch.randn(ROWS, DIM)), nn.Parameter(torch.randn(2, DIM))])
        self.names = nn.ParameterDict({"users": nn.Parameter(torch.randn(ROWS, DIM))})
        self.mix = nn.Linear(DIM, DIM)

    def forward(self, ids):
        users = F.embedding(ids, self.names["users"]) * self.lists[0][ids]
        return self.mix(users.mean(-2)) @ self.items.T


NAMES = ["items", "lists.0", "names.users"]


def bare(seed=0):
    torch.manual_seed(seed)
    return Bare()


def replaced(scheme="full", budget="1/1", **options):
    model = bare()
    before = copy.deepcopy(model)
    tables = replace_embeddings(model, budget, scheme=scheme, parameters=NAMES, **options)
    return model, before, tables


@pytest.mark.parametrize("scheme", ["full", "coded", "quantized", "low-rank", "dhe"])
def test_named_parameters_are_replaced_and_the_code_of_the_model_goes_on(scheme):
    model, before, tables = replaced(scheme, visits=20)
    assert [table.names for table in tables] == [("items",), ("lists.0",), ("names.users",)]
    assert [name for name, _ in model.named_parameters() if "scheme" not in name] == [
        "lists.1",
        "mix.weight",
        "mix.bias",
    ]
    assert model(IDS).shape == (2, ROWS)
    model(IDS).sum().backward()
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if name != "lists.1")
    if scheme == "full":
        torch.testing.assert_close(model(IDS), before(IDS))
        torch.testing.assert_close(model.eval()(IDS), before(IDS))


USES = {
    "rows by ids": lambda table: table[IDS],
    "one row": lambda table: table[torch.tensor(7)],
    "ids from the end": lambda table: table[torch.tensor([-1, 3])],
    "a number": lambda table: table[3],
    "a slice": lambda table: table[2:9, 1:],
    "a mask": lambda table: table[torch.arange(ROWS) % 3 == 0],
    "F.embedding": lambda table: F.embedding(IDS, table),
    "F.embedding by name": lambda table: F.embedding(input=IDS, weight=table),
    "F.embedding_bag": lambda table: F.embedding_bag(IDS, table, mode="sum"),
    "index_select": lambda table: torch.index_select(table, 0, IDS[0]),
    "index_select of a column": lambda table: torch.index_select(table, 1, torch.tensor([0, 3])),
    "its method": lambda table: table.index_select(0, IDS[0]),
    "gather": lambda table: torch.gather(table, 0, IDS),
    "a product": lambda table: torch.ones(2, DIM) @ table.T,
    "a product from the left": lambda table: table @ torch.ones(DIM, 2),
    "matmul": lambda table: torch.matmul(torch.ones(2, DIM), table.t()),
    "einsum": lambda table: torch.einsum("bd,nd->bn", torch.ones(2, DIM), table),
    "linear": lambda table: F.linear(torch.ones(2, DIM), table),
    "cat": lambda table: torch.cat([table, torch.ones(1, DIM)]),
    "normalize": lambda table: F.normalize(table, dim=-1),
    "sums": lambda table: (table + 1) * table - 2 * table / 3 - table**2 + -table,
    "norm": lambda table: table.norm(2),
    "rows": lambda table: torch.stack(list(table)[:4]),
    "another type": lambda table: table.to(torch.float64),
    "half": lambda table: table.half(),
    "detached": lambda table: table.detach(),
    "unsqueeze": lambda table: table.unsqueeze(0).expand(2, -1, -1),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_acts_as_the_parameter_did(use, training):
    model, before, _ = replaced()
    model.train(training)
    found = use(model.items)
    torch.testing.assert_close(found, use(before.items))
    assert not isinstance(found, nn.Module)


def test_its_shape_device_and_type_are_those_of_the_parameter():
    model, before, _ = replaced()
    for name in ("shape", "device", "dtype", "ndim", "requires_grad"):
        assert getattr(model.items, name) == getattr(before.items, name)
    assert (len(model.items), model.items.size(), model.items.size(1)) == (ROWS, (ROWS, DIM), DIM)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        model.items.nonsense  # noqa: B018


def test_rows_by_ids_cost_only_these_ids():
    model, _, _ = replaced("dhe", distil=False)
    seen = []
    model.items.scheme.register_forward_pre_hook(lambda module, args: seen.append(args[0].tolist()))
    model.items[IDS], F.embedding(IDS, model.items), torch.index_select(model.items, 0, IDS[0])
    assert seen == [[0, 1, 5, 17, 299], [0, 1, 5, 17, 299], [5, 299]]


@pytest.mark.parametrize(
    "write",
    [
        lambda model: nn.init.normal_(model.items),
        lambda model: model.items.data.zero_(),
        lambda model: model.items.copy_(torch.zeros(ROWS, DIM)),
        lambda model: model.items.detach().add_(1),
    ],
)
def test_it_cannot_be_written_to(write):
    model, _, _ = replaced("low-rank")
    with torch.no_grad(), pytest.raises(RuntimeError, match="cannot be written to"):
        write(model)


def test_it_is_saved_and_loaded(tmp_path):
    model, _, _ = replaced("low-rank", "1/2")
    save_replaced(model, tmp_path)
    loaded = load_replaced(bare(seed=1), tmp_path)
    assert torch.equal(loaded(IDS), model(IDS))
    assert type(loaded.lists[0]).__name__ == type(loaded.names["users"]).__name__ == "DropInParameter"
    other = bare(seed=1)
    other.items = nn.Parameter(torch.zeros(ROWS + 1, DIM))
    with pytest.raises(ValueError, match="'items' has 301 rows"):
        load_replaced(other, tmp_path)
    del other.items
    with pytest.raises(ValueError, match="has a table at 'items'; the model given has no such module"):
        load_replaced(other, tmp_path)
    with pytest.raises(ValueError, match="is replaced already"):
        load_replaced(loaded, tmp_path)


def test_it_can_be_tuned_and_copied():
    model, before, _ = replaced("low-rank", "1/4")
    assert torch.equal(copy.deepcopy(model)(IDS), model(IDS))
    done = tune(model, before, [torch.randint(ROWS, (16, 4)) for _ in range(5)], epochs=8, learning_rate=0.03)
    assert done.losses[-1] < done.losses[0]


def test_without_their_names_they_are_left_alone_with_a_hint():
    with pytest.warns(UserWarning, match=r"items: it is a bare parameter.*parameters=\['items'\]"):
        assert replace_embeddings(bare(), min_rows=100) == []


def test_a_table_that_is_a_bare_parameter_too_is_one_if_it_is_named():
    def build():
        model = bare()
        model.table = nn.Embedding(ROWS, DIM)
        model.items = model.table.weight
        return model

    model = build()
    with pytest.raises(ValueError, match=r"table of 'table' is also a weight of 'the model itself'.*\['items'\]"):
        replace_embeddings(model, min_rows=100)
    (entry,) = replace_embeddings(model, min_rows=100, parameters=["items"])
    assert entry.names == ("table", "items")
    assert torch.equal(model.items[IDS], model.table(IDS))


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("item", "no parameter of two dimensions has that name; did you mean 'items'"),
        ("mix.weight", "no parameter of two dimensions"),
        ("mix", "no parameter of two dimensions"),
    ],
)
def test_names_of_other_things_are_refused(name, match):
    model = bare()
    with pytest.raises(ValueError, match=match):
        replace_embeddings(model, min_rows=100, parameters=[name])
    assert isinstance(model.items, nn.Parameter)

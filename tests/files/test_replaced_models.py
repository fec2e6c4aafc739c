"""A model with replaced tables is saved, and a freshly built one becomes equal to it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tableless import SCHEMES, load_replaced, replace_embeddings, save_replaced

# Most tables here are noise, which is a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 300, 8


class Shop(nn.Module):
    """Tables of each kind, two that are tied, and other layers."""

    def __init__(self, rows=ROWS, dim=DIM):
        super().__init__()
        self.items = nn.Embedding(rows, dim, padding_idx=0)
        self.seen = nn.EmbeddingBag(rows, dim, mode="sum")
        self.seen.weight = self.items.weight
        self.users = nn.Embedding(2 * rows, dim)
        self.days = nn.Embedding(7, dim)
        self.norm = nn.BatchNorm1d(dim)
        self.head = nn.Linear(dim, dim, bias=False)
        self.tail = nn.Linear(dim, dim, bias=False)
        self.tail.weight = self.head.weight

    def forward(self, user, item, day, seen):
        vectors = self.users(user) * self.items(item) + self.days(day) + self.seen(seen)
        return self.tail(self.head(self.norm(vectors)))


def batch():
    return torch.arange(20), torch.arange(20) % 7, torch.arange(20) % 7, torch.arange(60).reshape(20, 3)


def replaced(scheme="dhe"):
    torch.manual_seed(0)
    model = Shop()
    budget = "1/1" if scheme == "full" else "1/2 parameters"
    replace_embeddings(model, budget, scheme=scheme, min_rows=100, distil=False)
    return model.eval()


def fresh(**sizes):
    torch.manual_seed(1)
    return Shop(**sizes).eval()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_fresh_model_becomes_equal_to_the_one_that_was_saved(scheme, tmp_path):
    model = replaced(scheme)
    save_replaced(model, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["replaced.json", "replaced.safetensors"]
    other = fresh()
    assert load_replaced(other, tmp_path / "out") is other
    assert torch.equal(other(*batch()), model(*batch()))
    assert torch.equal(other.items.weight, model.items.weight)
    assert other.items.scheme is other.seen.scheme
    assert other.head.weight is other.tail.weight
    assert list(other.state_dict()) == list(model.state_dict())


def test_mode_and_gradients_are_those_of_the_fresh_model_and_it_trains_on(tmp_path):
    save_replaced(replaced(), tmp_path)
    other = Shop()
    other.users.weight.requires_grad_(False)
    load_replaced(other, tmp_path)
    assert all(module.training for module in other.modules())
    assert not any(parameter.requires_grad for parameter in other.users.parameters())
    other(*batch()).sum().backward()
    assert all(parameter.grad is not None for parameter in other.items.parameters())


def test_a_model_of_another_type_comes_back_in_it(tmp_path):
    model = replaced("low-rank").to(torch.bfloat16)
    save_replaced(model, tmp_path)
    other = load_replaced(fresh().to(torch.bfloat16), tmp_path)
    assert torch.equal(other(*batch()), model(*batch()))


def test_an_earlier_save_is_replaced(tmp_path):
    save_replaced(replaced(), tmp_path)
    save_replaced(replaced("low-rank"), tmp_path)
    assert torch.equal(load_replaced(fresh(), tmp_path)(*batch()), replaced("low-rank")(*batch()))


def test_a_model_without_replaced_tables_or_with_more_than_tensors_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="no table of the model was replaced"):
        save_replaced(fresh(), tmp_path)
    model = replaced()
    model.get_extra_state = lambda: {"note": 1}
    type(model.norm).get_extra_state, before = lambda self: {"note": 1}, type(model.norm).get_extra_state
    try:
        with pytest.raises(ValueError, match=r"'norm._extra_state' of the state dict is of type dict"):
            save_replaced(model, tmp_path)
    finally:
        type(model.norm).get_extra_state = before
    assert list(tmp_path.iterdir()) == []


def refused(model, directory, match):
    """Loading is refused, and the model stays as it was."""
    before = list(model.modules())
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=match):
        load_replaced(model, directory)
    assert list(model.modules()) == before
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_a_model_that_is_built_otherwise_is_refused_and_stays_as_it_was(tmp_path):
    save_replaced(replaced(), tmp_path)
    refused(fresh(rows=ROWS + 1), tmp_path, r"'items' has 301 rows of 8; that of the saved model has 300 of 8")
    refused(nn.Sequential(nn.Embedding(ROWS, DIM)), tmp_path, "a table at 'items'; the model given has no such module")
    model = fresh()
    model.items = nn.Linear(2, 2)
    refused(model, tmp_path, "the model given has a Linear there")
    refused(replaced(), tmp_path, "'items' is replaced already")
    model = fresh()
    model.bias = nn.Parameter(torch.zeros(1))
    refused(model, tmp_path, "replaced.safetensors lacks bias")
    model = fresh()
    model.norm = nn.Identity()
    refused(model, tmp_path, "the model has not, norm.bias, norm.num_batches_tracked, norm.running_mean and 2 more")
    model = fresh()
    model.days = nn.Embedding(8, DIM)
    refused(model, tmp_path, "has in another shape days.weight")
    with torch.device("meta"):
        model = Shop()
    with pytest.raises(ValueError, match="'items' is on the meta device"):
        load_replaced(model, tmp_path)


def changed(directory, change):
    plan = json.loads((directory / "replaced.json").read_text())
    change(plan)
    (directory / "replaced.json").write_text(json.dumps(plan))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda plan: plan.update(version=2), r"replaced.json is of version 2; this library reads version 1"),
        (lambda plan: plan.pop("tables"), "does not describe replaced tables: KeyError: 'tables'"),
        (lambda plan: plan.update(tables=[3]), "does not describe replaced tables"),
        (lambda plan: plan["tables"][0].update(scheme={"scheme": "dhe"}), "does not describe replaced tables"),
        (lambda plan: plan["tables"][0]["scheme"].update(scheme="huge"), "no scheme is called 'huge'"),
        (lambda plan: plan["tables"][0]["scheme"]["arguments"].update(width=10**9), "in another shape items.scheme"),
        (lambda plan: plan["tables"][0]["scheme"]["arguments"].update(depth=10**9), "do not belong together"),
        (lambda plan: plan["tables"][0]["scheme"]["arguments"].update(width=1.5), "width is 1.5; it must be int"),
        (lambda plan: plan["tables"][0].update(names=[]), "does not describe replaced tables"),
        (lambda plan: plan["same_weights"].update(one="other"), "names the weight 'other', which"),
        (lambda plan: plan["same_weights"].clear(), "lacks seen.scheme"),
    ],
)
def test_a_plan_that_was_changed_is_refused(change, match, tmp_path):
    save_replaced(replaced(), tmp_path)
    changed(tmp_path, change)
    refused(fresh(), tmp_path, match)


def test_damaged_and_missing_files_are_refused(tmp_path):
    save_replaced(replaced(), tmp_path)
    weights, plan = tmp_path / "replaced.safetensors", tmp_path / "replaced.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-5])
    refused(fresh(), tmp_path, "replaced.safetensors is cut short, damaged, or no safetensors file")
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(fresh(), tmp_path, "replaced.safetensors is damaged")
    weights.write_bytes(whole)
    plan.write_text(plan.read_text()[:-9])
    refused(fresh(), tmp_path, "replaced.json is damaged, or not JSON")
    plan.unlink()
    with pytest.raises(FileNotFoundError):
        load_replaced(fresh(), tmp_path)


def test_weights_of_another_model_are_refused(tmp_path):
    save_replaced(replaced(), tmp_path)
    tensors = load_file(tmp_path / "replaced.safetensors")
    tensors.pop("days.weight")
    save_file(tensors, tmp_path / "replaced.safetensors")
    refused(fresh(), tmp_path, "lacks days.weight")

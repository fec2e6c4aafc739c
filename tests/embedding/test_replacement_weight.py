"""`.weight` of a replaced table: kept in eval mode, computed for training, and never written to in silence."""

import copy
import io

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tableless.embedding.replacement import replace_embeddings

# Most tables here are noise, which is a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 300, 8


def replaced(scheme="dhe", padding_idx=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(ROWS, DIM, padding_idx=padding_idx))
    replace_embeddings(model, "1/2 parameters", scheme=scheme, min_rows=100, distil=False)
    return model


def counted(model):
    """A list that gets an entry each time the scheme computes."""
    calls = []
    model[0].scheme.register_forward_pre_hook(lambda module, args: calls.append(1))
    return calls


def in_train(model):
    model.train()
    model.eval()


def by_assignment(model):
    scheme = model[0].scheme
    name, parameter = next(iter(scheme.named_parameters()))
    owner, _, last = name.rpartition(".")
    setattr(scheme.get_submodule(owner), last, nn.Parameter(parameter.detach() + 1))


@torch.no_grad()
def by_writing(model):
    next(model.parameters()).add_(1)


def by_loading(model):
    model.load_state_dict(
        {name: value + 1 for name, value in model.state_dict().items() if value.is_floating_point()}, strict=False
    )


def by_double_cast(model):
    for parameter in model.parameters():
        parameter.data += 1  # torch does not count this
    model.to(torch.float64).to(torch.float32)


def by_padding(model):
    model[0].padding_row.fill_(3)


# It is kept


@pytest.mark.parametrize("gradients", [True, False])
def test_in_eval_mode_it_is_computed_once(gradients):
    model = replaced().eval()
    calls = counted(model)
    with torch.set_grad_enabled(gradients):
        for _ in range(5):
            scores = torch.ones(1, DIM) @ model[0].weight.T
            model.eval()  # as many programs do before each request
    assert len(calls) == 1
    assert torch.equal(scores, torch.ones(1, DIM) @ model[0].scheme(torch.arange(ROWS)).T)
    assert scores.requires_grad == gradients


@pytest.mark.parametrize("change", [by_assignment, by_writing, by_loading, by_double_cast, by_padding, in_train])
def test_it_is_computed_anew_when_weights_or_mode_change(change):
    model = replaced(padding_idx=2).eval()
    calls = counted(model)
    with torch.no_grad():
        before = model[0].weight.clone()
        change(model)
        after = model[0].weight
    assert len(calls) == 2
    assert torch.equal(after, before) == (change is in_train)
    assert torch.equal(after, model(torch.arange(ROWS)))


def test_in_training_each_access_has_gradients_of_its_own():
    model = replaced()
    calls = counted(model)
    for _ in range(2):
        model[0].weight.sum().backward()
    assert len(calls) == 2


def test_in_eval_mode_gradients_are_those_of_the_scheme_also_a_second_time():
    model, goal = replaced(padding_idx=2).eval(), torch.randn(ROWS, DIM)
    (model(torch.arange(ROWS)) * goal).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    for _ in range(2):
        model.zero_grad()
        (model[0].weight * goal).sum().backward()
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


def test_a_gradient_that_would_be_wrong_is_refused():
    model = replaced().eval()
    loss = model[0].weight.sum()
    model.train()
    with pytest.raises(RuntimeError, match="in eval mode when its weight was read"):
        loss.backward()
    model.eval()
    loss = model[0].weight.sum()
    by_writing(model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_rows_kept_in_inference_mode_serve_outside_of_it():
    model = replaced().eval()
    with torch.inference_mode():
        model[0].weight  # noqa: B018 - it is kept from here on
    head = nn.Linear(DIM, 1)
    with torch.no_grad():
        rows = model[0].weight
    head(rows).sum().backward()
    assert head.weight.grad is not None


def test_what_is_kept_is_in_no_copy_and_no_file():
    model = replaced().eval()
    with torch.no_grad():
        model[0].weight  # noqa: B018
    assert copy.deepcopy(model)[0]._kept is None
    assert not any(tensor.shape == (ROWS, DIM) for tensor in model.state_dict().values())


def test_a_model_that_is_moved_to_another_type_answers_in_it():
    model = replaced("low-rank", padding_idx=2).eval().to(torch.bfloat16)
    assert model(torch.tensor([1, 2])).dtype == torch.bfloat16
    assert model[0].weight.dtype == torch.bfloat16
    assert model.float()[0].weight.dtype == torch.float32


# It is not written to

WRITES = {
    "init.normal_": lambda emb: nn.init.normal_(emb.weight),
    "init.xavier_uniform_": lambda emb: nn.init.xavier_uniform_(emb.weight),
    "init.constant_": lambda emb: nn.init.constant_(emb.weight, 0.0),
    "init.orthogonal_": lambda emb: nn.init.orthogonal_(emb.weight),
    "copy_": lambda emb: emb.weight.copy_(torch.zeros(ROWS, DIM)),
    "data.copy_": lambda emb: emb.weight.data.copy_(torch.zeros(ROWS, DIM)),
    "data.uniform_": lambda emb: emb.weight.data.uniform_(-1, 1),
    "data": lambda emb: setattr(emb.weight, "data", torch.zeros(ROWS, DIM)),
    "data, a row": lambda emb: emb.weight.data.__setitem__(0, 1.0),
    "a row": lambda emb: emb.weight.__setitem__(0, 1.0),
    "a view": lambda emb: emb.weight[1:].normal_(),
    "a view of several": lambda emb: emb.weight.unbind()[0].zero_(),
    "detached": lambda emb: emb.weight.detach().mul_(2),
    "*=": lambda emb: emb.weight.__imul__(2),
    "out": lambda emb: torch.mul(torch.ones(ROWS, DIM), 2, out=emb.weight),
    "freezing": lambda emb: setattr(emb.weight, "requires_grad", False),
    "freezing_": lambda emb: emb.weight.requires_grad_(False),
    "as a parameter": lambda emb: nn.Parameter(emb.weight),
    "assignment of a tensor": lambda emb: setattr(emb, "weight", torch.zeros(ROWS, DIM)),
    "assignment of a parameter": lambda emb: setattr(emb, "weight", nn.Parameter(torch.zeros(ROWS, DIM))),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writing_to_it_is_refused_with_a_sentence(write, gradients, training):
    model = replaced("low-rank").train(training)
    before = model[0].weight.clone()
    with torch.set_grad_enabled(gradients), pytest.raises((RuntimeError, AttributeError), match="cannot be written to"):
        write(model[0])
    assert torch.equal(model[0].weight, before)


def test_resetting_is_refused_with_a_sentence():
    with pytest.raises(RuntimeError, match="would lose what the scheme has learned"):
        replaced()[0].reset_parameters()


def test_an_array_of_it_cannot_be_written_to():
    weight = replaced().eval().requires_grad_(False)[0].weight
    for array in (weight.numpy(), np.asarray(weight), weight.data.cpu().numpy()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_it_is_read_like_any_tensor():
    emb = replaced().eval()[0]
    target, other = torch.zeros(ROWS, DIM), emb.weight.detach().clone()
    target.copy_(emb.weight.detach())
    assert torch.equal(target, other)
    for computed in (emb.weight + 1, emb.weight @ torch.ones(DIM), emb.weight.clone(), 2 * emb.weight[3], target):
        assert type(computed) is torch.Tensor
    other.zero_()
    nn.Parameter(emb.weight.detach().clone()).requires_grad_(False)
    assert copy.deepcopy(emb.weight.detach()).zero_().sum() == 0
    assert "ComputedRows([[" in repr(emb.weight)
    assert emb.weight.device == torch.device("cpu")


def test_it_is_saved_as_a_plain_tensor(tmp_path):
    weight = replaced().eval()[0].weight.detach()
    file = io.BytesIO()
    torch.save({"rows": weight}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["rows"]
    assert type(loaded) is torch.Tensor
    assert torch.equal(loaded, weight)
    save_file({"rows": weight}, tmp_path / "rows.safetensors")
    assert torch.equal(load_file(tmp_path / "rows.safetensors")["rows"], weight)


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ROWS, DIM)

    def forward(self, users):
        return users @ self.items.weight.T


def test_a_model_that_scores_all_rows_can_be_exported_and_computes_them():
    model = Scores()
    replace_embeddings(model, "1/2 parameters", min_rows=100, distil=False)
    model.eval()
    users = torch.randn(3, DIM)
    expected = model(users)
    program = torch.export.export(model, (users,))
    assert not any(tensor.shape == (ROWS, DIM) for tensor in program.constants.values())
    torch.testing.assert_close(program.module()(users), expected, atol=1e-5, rtol=1e-4)


def test_a_compiled_function_takes_it():
    weight = replaced().eval()[0].weight.detach()
    scores = torch.compile(lambda users, rows: users @ rows.T, backend="eager")
    torch.testing.assert_close(scores(torch.ones(1, DIM), weight), torch.ones(1, DIM) @ weight.T)

"""A model with replaced tables learns to answer as it did before."""

import copy
import dataclasses

import pytest
import torch
from torch import nn

from tableless import replace_embeddings, tune
from tableless.embedding import tuning_loop

# Tables of noise are a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 300, 8


class Scorer(nn.Module):
    """Ids of which few directions matter: what plain errors of rows do not know, and answers show."""

    def __init__(self):
        super().__init__()
        self.ids = nn.Embedding(ROWS, DIM)
        self.norm = nn.BatchNorm1d(DIM)
        self.hidden = nn.Sequential(nn.Linear(DIM, 16), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(16, 1)
        with torch.no_grad():
            self.ids.weight[:, 2:].mul_(3)
            self.hidden[0].weight[:, 2:].mul_(0.01)

    def forward(self, ids, scale=None):
        out = self.head(self.hidden(self.norm(self.ids(ids)))).squeeze(-1)
        return out if scale is None else out * scale


def pair(scheme="low-rank", budget="1/3", **options):
    torch.manual_seed(0)
    model = Scorer()
    before = copy.deepcopy(model)
    replace_embeddings(model, budget, scheme=scheme, min_rows=100, **options)
    return model, before


def inputs(count=8, size=100, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, ROWS, (size,), generator=generator) for _ in range(count)]


@torch.no_grad()
def difference(model, before):
    ids = torch.arange(ROWS)
    own, wanted = model.eval()(ids), before.eval()(ids)
    return float((own - wanted).square().mean() / wanted.var())


@pytest.mark.parametrize(
    ("scheme", "budget", "learning_rate"),
    [
        ("low-rank", "1/8", 0.03),
        ("dhe", "1/2", None),
        ("quantized", "1/4", 0.03),
        ("coded", "1/4", 0.003),
        ("bloom", "1/4", 0.03),
        ("head-and-tail", "1/2", None),
    ],
)
def test_it_answers_more_as_before(scheme, budget, learning_rate):
    model, before = pair(scheme, budget, visits=30)
    start = difference(model, before)
    done = tune(model, before, inputs(), epochs=10, learning_rate=learning_rate)
    assert done.losses[-1] < done.losses[0]
    assert difference(model, before) < 0.9 * start
    assert (done.steps, len(done.losses), done.best_epoch) == (80, 10, 10)
    assert (done.metrics, done.final_metric) == ((), None)


def test_only_the_replaced_tables_change_and_everything_is_as_it_was_otherwise():
    model, before = pair()
    model.train()
    model.head.eval()
    model.hidden[0].weight.requires_grad_(False)
    model.ids.requires_grad_(False)
    modes = {name: module.training for name, module in model.named_modules()}
    asked = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    state, teacher = copy.deepcopy(model.state_dict()), copy.deepcopy(before.state_dict())
    random = torch.get_rng_state()
    tune(model, before, inputs(2), epochs=1)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, state[name])}
    assert changed == {"ids.scheme.table.values", "ids.scheme.projection.values"}
    assert modes == {name: module.training for name, module in model.named_modules()}
    assert asked == {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    assert all(parameter.grad is None for parameter in [*model.parameters(), *before.parameters()])
    assert all(torch.equal(value, teacher[name]) for name, value in before.state_dict().items())
    assert before.training
    assert torch.equal(random, torch.get_rng_state())


def test_all_weights_are_tuned_at_choice_but_not_those_that_are_frozen():
    model, before = pair()
    model.hidden[0].bias.requires_grad_(False)
    state = copy.deepcopy(model.state_dict())
    tune(model, before, inputs(2), weights="all", epochs=1)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, state[name])}
    assert {"head.weight", "hidden.0.weight", "ids.scheme.table.values"} <= changed
    assert "hidden.0.bias" not in changed
    assert "norm.running_mean" not in changed, "nothing is learned from the way that batches are made up"


def test_the_same_seed_gives_the_same_model():
    models = [pair("dhe", "1/2", visits=5) for _ in range(2)]
    for model, before in models:
        tune(model, before, inputs(3), epochs=2)
    one, same = (model.eval()(torch.arange(ROWS)) for model, _ in models)
    assert torch.equal(one, same)


def test_weights_of_few_bits_are_rounded_at_the_end_and_packed_ones_are_unpacked():
    model, before = pair("dhe", "1/2", visits=5)
    model.ids.scheme.pack()
    tune(model, before, inputs(3), epochs=2)
    scheme = model.eval().ids.scheme
    vectors = scheme(torch.arange(ROWS)).detach()
    scheme.pack()
    torch.testing.assert_close(scheme(torch.arange(ROWS)), vectors)


# A metric


def closeness(before):
    return lambda model: -difference(model, before)


def test_the_best_weights_by_a_metric_are_kept():
    model, before = pair()
    values = iter([0.1, 0.5, 0.9, 0.3, 0.9, 0.9])
    seen = []

    def metric(student):
        seen.append(copy.deepcopy(student.state_dict()))
        assert not student.training
        assert not student(torch.arange(3)).requires_grad
        return next(values)

    done = tune(model, before, inputs(2), epochs=4, metric=metric)
    assert (done.metrics, done.best_epoch, done.final_metric) == ((0.1, 0.5, 0.9, 0.3, 0.9), 2, 0.9)
    state = model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in seen[2].items())


def test_the_start_competes_and_patience_ends_it():
    model, before = pair()
    state = copy.deepcopy(model.state_dict())
    values = iter([0.9, 0.1, 0.2, 0.3, 0.9])
    done = tune(model, before, inputs(2), epochs=10, metric=lambda _: next(values), patience=3)
    assert (done.metrics, done.best_epoch, done.steps) == ((0.9, 0.1, 0.2, 0.3), 0, 6)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    model, before = pair("low-rank", "1/8")
    done = tune(model, before, inputs(), metric=closeness(before), epochs=5, learning_rate=0.03)
    assert done.best_epoch > 0
    assert done.final_metric > done.metrics[0]


def test_a_metric_that_is_no_number_never_wins():
    model, before = pair()
    values = iter([0.5, float("nan"), 0.6, float("nan"), 0.6])
    assert tune(model, before, inputs(1), epochs=3, metric=lambda _: next(values)).best_epoch == 2


# Batches


class ByName(nn.Module):
    """Takes a dictionary as one thing, as torch-rechub does."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, features):
        return self.inner(features["item"])


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    vectors: torch.Tensor


class WithNames(nn.Module):
    """Takes names and gives a dataclass, as transformers does."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, attention_mask=None):
        return Answer(self.inner(input_ids), self.inner.ids(input_ids))


def tuned_by(wrap, batches, **options):
    model, before = pair(distil=False)
    return tune(wrap(model), wrap(before), batches, epochs=2, **options).losses


def test_batches_of_any_form_give_the_same_result():
    own, plain = inputs(3), tuned_by(lambda model: model, inputs(3))
    ones = [torch.ones(len(batch)) for batch in own]
    assert tuned_by(lambda model: model, list(zip(own, ones, strict=True))) == plain
    assert tuned_by(lambda model: model, [list(both) for both in zip(own, ones, strict=True)]) == plain
    assert tuned_by(lambda model: model, [{"ids": batch} for batch in own]) == plain
    assert tuned_by(ByName, [{"item": batch} for batch in own]) == plain
    labelled = [(batch, torch.zeros(1), torch.zeros(1)) for batch in own]
    assert tuned_by(lambda model: model, labelled, call=lambda model, batch: model(batch[0])) == plain
    assert tuned_by(lambda model: model, torch.utils.data.DataLoader(torch.cat(own), batch_size=100)) == plain
    assert tuned_by(lambda model: model, iter(own)) == plain, "an iterator is kept"

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.cat(own))

    assert tuned_by(lambda model: model, torch.utils.data.DataLoader(Stream(), batch_size=100)) == plain


def test_dictionaries_of_a_model_that_gives_a_dataclass_and_its_mask():
    own = [{"input_ids": batch.view(20, 5), "attention_mask": torch.ones(20, 5)} for batch in inputs(3)]
    padded = copy.deepcopy(own)
    for batch in padded:
        batch["attention_mask"][:, 3:] = 0
        batch["input_ids"][:, 3:] = 7
    cut = [{name: value[:, :3] for name, value in batch.items()} for batch in padded]
    assert tuned_by(lambda model: ByTokens(model), padded) == pytest.approx(tuned_by(lambda m: ByTokens(m), cut))
    assert tuned_by(lambda model: ByTokens(model), own) != pytest.approx(tuned_by(lambda m: ByTokens(m), cut))


class ByTokens(WithNames):
    def forward(self, input_ids, attention_mask=None):
        vectors = self.inner.ids(input_ids)
        return Answer(vectors[..., :4], vectors)


# What is told, and what is refused


def test_progress_is_told_after_every_step():
    told = []
    model, before = pair()
    done = tune(model, before, inputs(3), epochs=2, progress=told.append)
    assert [(each.done, each.total) for each in told] == [(step, 6) for step in range(1, 7)]
    assert sum(each.error for each in told[:3]) / 3 == pytest.approx(done.losses[0])


def test_the_rate_rises_falls_and_is_that_of_each_scheme(monkeypatch):
    model, before = pair()
    seen = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self: (seen.append([g["lr"] for g in self.param_groups]), step(self))
    )
    tune(model, before, inputs(5), epochs=4, weights="all")
    highest = [max(rates) for rates in zip(*seen, strict=True)]
    assert highest == pytest.approx([model.ids.scheme.tuning_rate, 1e-4])
    assert seen[0] == pytest.approx([0.1 * rate for rate in highest])
    assert seen[-1][0] < 0.02 * highest[0]
    seen.clear()
    tune(model, before, inputs(5), epochs=4, weights="all", learning_rate=0.5)
    assert [max(rates) for rates in zip(*seen, strict=True)] == pytest.approx([0.5, 0.5])


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    model, before = pair()
    state, whole = [], inputs(3)

    def metric(student):
        state.append(copy.deepcopy(student.state_dict()))
        return len(state)

    class Interrupted:
        calls = 0

        def __len__(self):
            return 3

        def __iter__(self):
            self.calls += 1
            yield whole[0]
            if self.calls == 3:
                raise KeyboardInterrupt
            yield from whole[1:]

    done = tune(model, before, Interrupted(), metric=metric)
    assert (len(done.losses), done.best_epoch, done.steps) == (2, 2, 7)
    assert all(torch.equal(value, state[2][name]) for name, value in model.state_dict().items())


def test_a_loss_that_is_not_finite_ends_it_with_the_best_weights():
    model, before = pair()
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(FloatingPointError, match=r"after 1 steps; give a lower learning_rate"):
        tune(model, before, [inputs(1)[0], (inputs(1)[0], torch.tensor(float("inf")))], epochs=1)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        (lambda m, b: (b, m, inputs(1)), {}, ValueError, "no table of the student was replaced"),
        (lambda m, b: (m, m, inputs(1)), {}, ValueError, r"the teacher shares 'ids.scheme.* copy.deepcopy\(model\)"),
        (lambda m, b: (m, b.to("meta"), inputs(1)), {}, ValueError, "on cpu and the teacher on meta; move one"),
        (lambda m, b: (m, b, []), {}, ValueError, "epoch 1 has no batches"),
        (lambda m, b: (m, b, inputs(1)), {"epochs": 0}, ValueError, "epochs is 0"),
        (lambda m, b: (m, b, inputs(1)), {"weights": "tabels"}, ValueError, "did you mean 'tables'"),
        (lambda m, b: (m, b, inputs(1)), {"kind": "logit"}, ValueError, "kind is 'logit'"),
        (lambda m, b: (m, b, [(1, 2, 3)]), {}, TypeError, "a batch has 3 parts, and the forward of Scorer does not"),
        (
            lambda m, b: (m, b, inputs(1)),
            {"call": lambda model, batch: model.head(torch.ones(2, 16))},
            ValueError,
            "do not depend on the weights that are trained",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused_with_the_way_out(arguments, options, error, match):
    model, before = pair(distil=False)
    with pytest.raises(error, match=match):
        tune(*arguments(model, before), **options)


def test_the_rate_ends_at_nothing():
    assert tuning_loop.one_cycle(0.1) == pytest.approx(1)
    assert tuning_loop.one_cycle(1.0) == pytest.approx(0, abs=1e-12)

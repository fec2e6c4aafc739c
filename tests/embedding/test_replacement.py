import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from tableless import SCHEMES
from tableless.embedding.drop_in import DropInEmbedding, DropInEmbeddingBag
from tableless.embedding.replacement import replace_embeddings
from tableless.embedding.tables import FullEmbedding

# Most tables here are noise, which is a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 300, 8
NEW = {"budget": "1/2 parameters", "min_rows": 100, "distil": False}
FEW = {"budget": "1/2 parameters", "min_rows": 100, "visits": 2}  # hardly fitted: enough where not the fit is tested


class Shop(nn.Module):
    """Large and small tables, at several depths, and something else."""

    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(2 * ROWS, DIM)
        self.sides = nn.ModuleDict({"films": nn.Embedding(ROWS, DIM, padding_idx=0), "days": nn.Embedding(7, DIM)})
        self.towers = nn.ModuleList([nn.Sequential(nn.EmbeddingBag(ROWS, DIM, mode="sum"))])
        self.head = nn.Linear(DIM, 1)

    def forward(self, user, item, day, tags):
        vectors = self.users(user) * self.sides["films"](item) + self.sides["days"](day) + self.towers[0](tags)
        return self.head(vectors).squeeze(-1)


def shop(seed=0):
    torch.manual_seed(seed)
    return Shop()


def batch(size=40):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, high, (size,), generator=generator) for high in (2 * ROWS, ROWS, 7)] + [
        torch.randint(0, ROWS, (size, 5), generator=generator)
    ]


def same_rows(table):
    """A drop-in over a full table with the rows of `table`: it must agree with it in every respect."""
    full = FullEmbedding(table.embedding_dim, vocab_size=table.num_embeddings)
    full.table.data = table.weight.detach().clone()
    return DropInEmbedding(full, table) if isinstance(table, nn.Embedding) else DropInEmbeddingBag(full, table)


# What is replaced


def test_large_tables_are_replaced_wherever_they_are_and_small_ones_stay():
    model = shop()
    days, head = model.sides["days"], model.head
    report = replace_embeddings(model, **FEW)
    assert [(entry.name, entry.rows, entry.embedding_dim) for entry in report] == [
        ("users", 2 * ROWS, DIM),
        ("sides.films", ROWS, DIM),
        ("towers.0.0", ROWS, DIM),
    ]
    assert [type(module) for module in (model.users, model.sides["films"], model.towers[0][0])] == [
        DropInEmbedding,
        DropInEmbedding,
        DropInEmbeddingBag,
    ]
    assert model.sides["days"] is days
    assert model.head is head
    assert model(*batch()).shape == (40,)


def test_the_number_of_rows_from_which_on_is_exact_and_nothing_to_do_is_no_error():
    model = shop()
    assert [entry.name for entry in replace_embeddings(model, **NEW | {"min_rows": 2 * ROWS})] == ["users"]
    with pytest.warns(UserWarning, match="no table was replaced"):
        assert replace_embeddings(model, **NEW | {"min_rows": ROWS + 1}) == []
    with pytest.warns(UserWarning, match="no table was replaced"):
        assert replace_embeddings(nn.Linear(2, 2)) == []


def test_what_was_replaced_is_not_replaced_again():
    model = shop()
    replace_embeddings(model, "1/1", scheme="full", distil=False, min_rows=100)
    with pytest.warns(UserWarning, match="users: it was replaced before"):
        assert replace_embeddings(model, min_rows=100) == []


def test_excluded_tables_and_modules_stay():
    model = shop()
    report = replace_embeddings(model, exclude=["towers", "sides.films"], **FEW)
    assert [entry.name for entry in report] == ["users"]
    assert type(model.towers[0][0]) is nn.EmbeddingBag


def test_mode_gradients_and_device_are_those_of_the_table():
    model = shop()
    model.users.eval()
    model.users.weight.requires_grad_(False)
    replace_embeddings(model, **FEW)
    assert not any(module.training for module in model.users.modules())
    assert all(module.training for module in model.sides["films"].modules())
    assert not any(parameter.requires_grad for parameter in model.users.parameters())
    assert all(parameter.requires_grad for parameter in model.sides["films"].parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    meta = shop().to("meta")
    replace_embeddings(meta, **NEW)
    assert all(tensor.is_meta for tensor in meta.state_dict().values())


# Budgets


def test_a_share_is_of_each_table():
    report = replace_embeddings(shop(), "1/2 parameters", scheme="dhe", distil=False, min_rows=100)
    for entry in report:
        assert entry.parameters_before == entry.rows * DIM
        assert 0.7 < entry.parameters_after / (entry.parameters_before / 2) <= 1


@pytest.mark.parametrize("budget", ["1/2", "16B/id", "50%"])
def test_a_share_of_the_bytes_and_bytes_per_id_are_of_each_table(budget):
    report = replace_embeddings(shop(), budget, scheme="bloom", distil=False, min_rows=100)
    assert [entry.rows for entry in report] == [2 * ROWS, ROWS, ROWS]
    for entry in report:
        assert entry.bytes_before == entry.rows * DIM * 4
        assert entry.rows * 16 - 2 * DIM * 4 < entry.bytes_after <= entry.rows * 16


def test_the_bytes_of_a_table_are_those_of_its_own_precision():
    model = nn.Sequential(nn.Embedding(ROWS, DIM, dtype=torch.bfloat16))
    (entry,) = replace_embeddings(model, "1/2", scheme="bloom", distil=False, min_rows=100)
    assert entry.bytes_before == ROWS * DIM * 2
    assert ROWS * 16 - 2 * DIM * 4 < entry.bytes_after <= ROWS * 16  # a share is one of the table in float32


@pytest.mark.parametrize("budget", [6000, "6000 parameters"])
def test_a_number_is_for_all_tables_together_in_proportion_to_their_sizes(budget):
    model = shop()
    rest = sum(parameter.numel() for parameter in [*model.sides["days"].parameters(), *model.head.parameters()])
    report = replace_embeddings(model, budget, scheme="dhe", distil=False, min_rows=100)
    shares = [entry.parameters_after / 6000 for entry in report]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.05)
    assert sum(shares) <= 1
    assert sum(parameter.numel() for parameter in model.parameters()) == rest + sum(
        entry.parameters_after for entry in report
    )


def test_memory_is_for_all_tables_together_in_proportion_to_their_sizes():
    model = shop()
    report = replace_embeddings(model, "24KB", scheme="dhe", distil=False, min_rows=100)
    shares = [entry.bytes_after / 24_000 for entry in report]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.05)
    assert sum(shares) <= 1
    schemes = [model.users.scheme, model.sides["films"].scheme, model.towers[0][0].scheme]
    assert [entry.bytes_after for entry in report] == [scheme.num_bytes for scheme in schemes]


def test_a_budget_too_small_or_too_large_is_refused_and_the_model_left_as_it_was():
    model = shop()
    before = list(model.modules())
    with pytest.raises(ValueError, match=r"'users': a budget of 50 parameters is too small.*exclude=\['users'\]"):
        replace_embeddings(model, 100, scheme="dhe", min_rows=100)
    with pytest.raises(ValueError, match=r"'users': a budget of 50 bytes is too small.*exclude=\['users'\]"):
        replace_embeddings(model, "100B", scheme="dhe", min_rows=100)
    with pytest.raises(ValueError, match="a budget of 10000 parameters is met already: the tables have 9600"):
        replace_embeddings(model, 10_000, min_rows=100)
    with pytest.raises(
        ValueError, match="a budget of 40000 bytes is met already: the tables have 9600 parameters of 4"
    ):
        replace_embeddings(model, "40KB", min_rows=100)
    with pytest.raises(ValueError, match="'a bit' is not understood"):
        replace_embeddings(model, "a bit", min_rows=100)
    assert list(model.modules()) == before


# The default scheme


@pytest.mark.parametrize(
    ("budget", "kind"),
    [("1/1", "FullEmbedding"), ("1/2", "QuantizedEmbedding"), ("1/2 parameters", "QuantizedEmbedding")]
    + [(budget, "CodedEmbedding") for budget in ("1/4", "8B/id", "60KB", "9600 parameters")],
)
def test_unless_a_scheme_is_given_it_is_the_best_for_known_ids_and_takes_no_steps(budget, kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(1_500, 32), nn.Embedding(1_500, 32))
    told = []
    report = replace_embeddings(model, budget, min_rows=100, progress=told.append)
    assert [type(module.scheme).__name__ for module in model] == [kind, kind]
    assert all(entry.unexplained < 0.5 for entry in report)
    # Codes are found for some rows at a time, which is told; nothing is learned by steps that last.
    assert all(entry.seconds < 60 for entry in report)


# Fitting


def test_the_new_scheme_says_what_the_table_said():
    model = shop()
    rows = model.users.weight.detach().clone()
    (entry,) = replace_embeddings(model, "1/1 parameters", scheme="dhe", min_rows=ROWS + 1, visits=300)
    vectors = model.users(torch.arange(2 * ROWS)).detach()
    error = float((vectors - rows).square().mean() / rows.square().mean())
    assert entry.unexplained == pytest.approx(error, rel=0.02)
    assert entry.mean_cosine == pytest.approx(float(torch.cosine_similarity(vectors, rows).mean()), rel=0.02)
    assert entry.unexplained < 0.25
    assert entry.seconds > 0


def test_without_distillation_it_starts_fresh():
    model = shop()
    rows = model.users.weight.detach().clone()
    (entry,) = replace_embeddings(model, **NEW | {"min_rows": ROWS + 1})
    assert (entry.unexplained, entry.mean_cosine) == (None, None)
    assert abs(torch.cosine_similarity(model.users(torch.arange(2 * ROWS)), rows).mean()) < 0.1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_scheme_can_take_the_place(scheme):
    model = shop()
    budget = "1/1" if scheme == "full" else "1/2 parameters"
    report = replace_embeddings(model, scheme=scheme, **FEW | {"budget": budget})
    assert all(0 <= entry.unexplained < 2 for entry in report)
    model(*batch()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_same_seed_gives_the_same_model_and_tables_do_not_share_one():
    models = [shop() for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        replace_embeddings(model, seed=seed, scheme="dhe", **FEW | {"visits": 20})  # fewer leave every id the mean row
    one, same, other = (model(*batch()) for model in models)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    hashes = [models[0].users.scheme.encoder.hashes, models[0].sides["films"].scheme.encoder.hashes]
    assert not torch.equal(hashes[0].coefficients, hashes[1].coefficients)


def test_the_random_numbers_of_the_caller_are_not_used_up():
    model = shop()
    state = torch.get_rng_state()
    replace_embeddings(model, **FEW)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_table_that_says_nothing_is_refused_for_fitting_only(value):
    model = nn.Sequential(nn.Embedding(ROWS, DIM))
    model[0].weight.data.fill_(value)
    with pytest.raises(ValueError, match=r"'0' is all zero or not finite.*distil=False"):
        replace_embeddings(model, **FEW)
    assert type(model[0]) is nn.Embedding
    assert len(replace_embeddings(model, **NEW)) == 1


# Using the model afterwards


def test_it_trains_on():
    model = shop()
    replace_embeddings(model, **FEW)
    inputs, target = batch(), torch.randn(40, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (model(*inputs) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]


def test_its_state_dict_fits_a_model_replaced_in_the_same_way():
    trained, other = shop(seed=0), shop(seed=1)
    replace_embeddings(trained, **FEW)
    replace_embeddings(other, **NEW)
    assert not torch.equal(other(*batch()), trained(*batch()))
    state = trained.state_dict()
    assert not any(key.endswith("weight") and tensor.shape[0] >= ROWS for key, tensor in state.items())
    other.load_state_dict(state, strict=True)
    assert torch.equal(other(*batch()), trained(*batch()))


def test_it_can_be_copied():
    model = shop()
    replace_embeddings(model, **FEW)
    assert torch.equal(copy.deepcopy(model)(*batch()), model(*batch()))


@pytest.mark.parametrize("scheme", ["auto", "coded", "low-rank", "dhe"])
def test_it_can_be_exported(scheme):
    model = nn.Sequential(nn.Embedding(ROWS, DIM, padding_idx=0), nn.Linear(DIM, 1))
    replace_embeddings(model, scheme=scheme, **FEW)
    model.eval()
    ids = torch.tensor([[5, 0, 5], [7, 199, 1]])
    program = torch.export.export(model, (ids,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    assert "unique" not in str(program.graph)
    more = torch.cat([ids, ids + 100])
    torch.testing.assert_close(program.module()(more), model(more), atol=1e-5, rtol=1e-4)


# Shared tables


def test_a_module_with_two_names_is_replaced_once():
    model = nn.ModuleDict({"left": nn.Sequential(nn.Embedding(ROWS, DIM))})
    model["right"] = model["left"][0]
    (entry,) = replace_embeddings(model, **FEW)
    assert entry.names == ("left.0", "right")
    assert model["left"][0] is model["right"]


def test_modules_tied_to_one_table_share_one_scheme_and_keep_their_own_padding():
    model = nn.ModuleDict({"ids": nn.Embedding(ROWS, DIM), "padded": nn.Embedding(ROWS, DIM, padding_idx=3)})
    model["bag"] = nn.EmbeddingBag(ROWS, DIM, mode="sum")
    model["padded"].weight = model["bag"].weight = model["ids"].weight
    row = model["ids"].weight.detach()[3].clone()
    (entry,) = replace_embeddings(model, **FEW)
    assert entry.names == ("ids", "padded", "bag")
    assert entry.parameters_after == sum(parameter.numel() for parameter in model.parameters())
    assert model["ids"].scheme is model["padded"].scheme is model["bag"].scheme
    assert torch.equal(model["padded"](torch.tensor(3)), row)
    assert not torch.equal(model["ids"](torch.tensor(3)), row)
    torch.testing.assert_close(model["bag"](torch.tensor([[4]])), model["ids"](torch.tensor([4])))


def test_a_table_that_something_else_uses_is_refused_by_name():
    class Scores(nn.Linear):
        def forward(self, input):
            return super().forward(input).sigmoid()

    model = nn.ModuleDict({"embed": nn.Embedding(ROWS, DIM), "head": Scores(DIM, ROWS, bias=False)})
    model["head"].weight = model["embed"].weight
    with pytest.raises(
        ValueError, match=r"table of 'embed' is also a weight of 'head' \(Scores\).*exclude=\['embed'\]"
    ):
        replace_embeddings(model, **FEW)
    with pytest.warns(UserWarning, match="embed: exclude names it"):
        assert replace_embeddings(model, exclude=["embed"], **FEW) == []
    two = nn.ModuleList([nn.Embedding(ROWS, DIM), nn.Embedding(ROWS, DIM)])
    two[1].weight = two[0].weight
    with pytest.raises(ValueError, match=r"table of '0' is also a weight of '1' \(Embedding\)"):
        replace_embeddings(two, exclude=["1"], **FEW)


# What is refused


def test_a_model_that_is_a_table_is_refused():
    with pytest.raises(ValueError, match=r"itself an nn.Embedding.*nn.Sequential, or .*tableless.distil"):
        replace_embeddings(nn.Embedding(ROWS, DIM), **FEW)


class Scaled(nn.Embedding):
    def forward(self, input):
        return 2 * super().forward(input)


class Double(nn.Module):
    def forward(self, weight):
        return 2 * weight


def with_hook():
    table = nn.Embedding(ROWS, DIM)
    table.register_forward_hook(lambda module, args, output: 2 * output)
    return table


def parametrized():
    table = nn.Embedding(ROWS, DIM)
    parametrize.register_parametrization(table, "weight", Double())
    return table


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Scaled(ROWS, DIM), "Scaled with a forward of its own"),
        (lambda: nn.Embedding(ROWS, DIM, max_norm=1.0), "max_norm"),
        (lambda: nn.EmbeddingBag(ROWS, DIM, scale_grad_by_freq=True), "scale_grad_by_freq"),
        (with_hook, "has hooks"),
        (parametrized, "computes its weight"),
    ],
)
def test_a_table_that_does_more_than_look_up_is_refused_with_the_way_out(build, reason):
    model = nn.Sequential(build(), nn.Embedding(ROWS, DIM))
    table = model[0]
    with pytest.raises(ValueError, match=rf"'0' .*{reason}.*exclude=\['0'\]"):
        replace_embeddings(model, **FEW)
    assert [entry.name for entry in replace_embeddings(model, exclude=["0"], **FEW)] == ["1"]
    assert model[0] is table


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="exclude names 'user'"):
        replace_embeddings(shop(), exclude=["user"], **FEW)
    with pytest.raises(ValueError, match="no scheme is called 'dhee'; known are auto, dhe"):
        replace_embeddings(shop(), scheme="dhee", **FEW)


# The drop-ins, against what they stand for


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 4), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_an_embedding_agrees_with_torch_for_any_shape(shape, dtype):
    table = nn.Embedding(ROWS, DIM, padding_idx=2)
    ids = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(same_rows(table)(input=ids), table(ids))
    model = nn.Sequential(table)
    replace_embeddings(model, **FEW)
    assert model(ids).shape == (*shape, DIM)


def test_the_attributes_are_those_of_the_table():
    for table in (nn.Embedding(ROWS, DIM, padding_idx=-1), nn.EmbeddingBag(ROWS, DIM, mode="max")):
        drop_in = same_rows(table)
        for name in ("num_embeddings", "embedding_dim", "padding_idx"):
            assert getattr(drop_in, name) == getattr(table, name)
        assert f"{ROWS}, {DIM}, padding_idx={table.padding_idx}" in repr(drop_in)


def test_each_distinct_id_is_computed_once_and_the_gradient_counts_each_time():
    model = nn.Sequential(nn.Embedding(ROWS, DIM))
    replace_embeddings(model, scheme="dhe", **FEW)
    seen, scheme = [], model[0].scheme
    scheme.register_forward_pre_hook(lambda module, args: seen.append(args[0].tolist()))
    ids = torch.tensor([[5, 5, 9], [5, 1, 9]])
    model(ids).square().sum().backward()
    assert seen == [[1, 5, 9]]
    ours = [parameter.grad.clone() for parameter in scheme.parameters()]
    scheme.zero_grad()
    scheme(ids).square().sum().backward()
    for gradient, parameter in zip(ours, scheme.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, atol=1e-5, rtol=1e-4)


def test_padding_keeps_its_row_and_gets_no_gradient():
    table = nn.Embedding(ROWS, DIM, padding_idx=2)
    drop_in = same_rows(table)
    assert torch.equal(drop_in(torch.tensor([2])), torch.zeros(1, DIM))
    table.weight.data[2] = 7.0  # as some pretrained tables have it
    drop_in = same_rows(table)
    vectors = drop_in(torch.tensor([2, 3, 2]))
    assert torch.equal(vectors[0], torch.full((DIM,), 7.0))
    vectors.sum().backward()
    assert drop_in.scheme.table.grad[2].abs().sum() == 0
    assert drop_in.scheme.table.grad[3].abs().sum() > 0


def test_the_weight_is_computed_and_passes_gradients_on():
    model = nn.Sequential(nn.Embedding(ROWS, DIM, padding_idx=4))
    replace_embeddings(model, **FEW)
    weight = model[0].weight
    assert weight.shape == (ROWS, DIM)
    torch.testing.assert_close(weight, model(torch.arange(ROWS)), atol=1e-5, rtol=1e-4)
    (torch.randn(3, DIM) @ weight.T).logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert "0.weight" not in dict(model.named_parameters())
    assert "0.weight" not in model.state_dict()
    with pytest.raises((AttributeError, KeyError)):
        model[0].weight = nn.Parameter(torch.zeros(ROWS, DIM))


def test_new_ids_get_a_vector_from_an_open_scheme_and_an_error_from_a_closed_one():
    models = [nn.Sequential(nn.Embedding(ROWS, DIM)) for _ in range(2)]
    for model, scheme in zip(models, ("dhe", "low-rank"), strict=True):
        replace_embeddings(model, scheme=scheme, **FEW)
    assert models[0](torch.tensor([ROWS + 5])).shape == (1, DIM)
    with pytest.raises(IndexError, match=f"id {ROWS + 5} has no row"):
        models[1](torch.tensor([ROWS + 5]))


def test_ids_that_are_no_integers_are_refused():
    with pytest.raises(TypeError, match=r"torch.float32; an embedding takes int32 or int64"):
        same_rows(nn.Embedding(ROWS, DIM))(torch.tensor([1.5]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_vectors_have_the_type_of_the_table(dtype):
    model = nn.ModuleDict({"one": nn.Embedding(ROWS, DIM), "bag": nn.EmbeddingBag(ROWS, DIM, mode="sum")}).to(dtype)
    replace_embeddings(model, **FEW)
    ids = torch.tensor([[1, 2]])
    assert model["one"](ids).dtype == dtype
    assert model["bag"](ids, None, torch.ones(1, 2, dtype=dtype)).dtype == dtype
    assert model["one"].weight.dtype == dtype


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("last", [False, True])
def test_a_bag_agrees_with_torch_however_it_is_called(mode, padding, last):
    table = nn.EmbeddingBag(ROWS, DIM, mode=mode, padding_idx=padding, include_last_offset=last)
    drop_in = same_rows(table)
    rows = torch.tensor([[1, 2, 3], [2, 2, 2], [4, 4, 2]], dtype=torch.int32)
    torch.testing.assert_close(drop_in(rows), table(rows))
    flat, offsets = torch.tensor([5, 2, 6, 2, 7]), torch.tensor([0, 2, 2, 5] if last else [0, 2, 2])
    torch.testing.assert_close(drop_in(flat, offsets), table(flat, offsets))
    torch.testing.assert_close(drop_in(input=flat, offsets=offsets), table(input=flat, offsets=offsets))
    torch.testing.assert_close(drop_in.weight, table.weight.detach())


def test_a_weighted_bag_agrees_with_torch_and_so_do_its_gradients():
    table = nn.EmbeddingBag(ROWS, DIM, mode="sum", padding_idx=2)
    drop_in = same_rows(table)
    rows, weights = torch.tensor([[1, 2, 3], [4, 4, 2]]), torch.rand(2, 3)
    mine, reference = drop_in(rows, None, weights), table(rows, None, weights)
    torch.testing.assert_close(mine, reference)
    mine.square().sum().backward()
    reference.square().sum().backward()
    torch.testing.assert_close(drop_in.scheme.table.grad, table.weight.grad)

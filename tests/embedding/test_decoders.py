from typing import get_args

import pytest
import torch
from torch import nn

from tableless import DeepHashEmbedding
from tableless.embedding.decoders import Architecture, EmbeddingNetwork
from tableless.embedding.layers import Activation, BatchNorm, Grouping

every_architecture = pytest.mark.parametrize("architecture", get_args(Architecture))
every_activation = pytest.mark.parametrize("activation", get_args(Activation))


def codes(count=64, code_dim=32):
    return torch.rand(count, code_dim, generator=torch.Generator().manual_seed(0)) * 2 - 1


@every_architecture
@every_activation
@pytest.mark.parametrize("normalization", ["batch", "none"])
@pytest.mark.parametrize("num_experts", [1, 3])
def test_every_network_starts_at_the_same_scale_and_trains(architecture, activation, normalization, num_experts):
    network = EmbeddingNetwork(
        32,
        8,
        width=160,
        depth=5,
        architecture=architecture,
        activation=activation,
        normalization=normalization,
        num_experts=num_experts,
    )
    experts = torch.arange(512) % num_experts if num_experts > 1 else None
    embeddings = network(codes(512), experts)
    assert 0.005 < embeddings.std() < 0.02
    embeddings.square().sum().backward()
    weights = [parameter.grad for key, parameter in network.named_parameters() if key.endswith("weight")]
    assert all(grad is not None and grad.abs().max() > 0 for grad in weights)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("equal-width", [(32, 16), (16, 16), (16, 16), (16, 8)]),
        ("residual", [(32, 16), (16, 16), (16, 16), (16, 8)]),
        ("pyramid", [(32, 4), (4, 8), (8, 16), (16, 8)]),
        ("inverted-pyramid", [(32, 16), (16, 8), (8, 4), (4, 8)]),
        ("densenet", [(32, 16), (16, 16), (32, 16), (48, 8)]),
    ],
)
def test_layers_have_the_sizes_of_the_architecture(architecture, expected):
    network = EmbeddingNetwork(32, 8, width=16, depth=3, architecture=architecture)
    linears = [module for module in network.modules() if isinstance(module, nn.Linear)]
    assert [(linear.in_features, linear.out_features) for linear in linears] == expected


def test_a_residual_network_adds_each_layers_input():
    network = EmbeddingNetwork(32, 8, width=16, depth=2, architecture="residual").eval()
    first = network.hidden[0](codes(), None)
    second = network.hidden[1](first, None) + first
    torch.testing.assert_close(network(codes()), network.output(second))


def test_the_output_layer_is_linear_so_embeddings_take_any_value():
    network = EmbeddingNetwork(32, 8, width=64, depth=2, initial_std=1.0)
    embeddings = network(codes(1000))
    assert embeddings.min() < -2
    assert embeddings.max() > 2
    assert isinstance(network.output, nn.Linear)


def test_the_paper_s_network_has_the_paper_s_parameters():
    scheme = DeepHashEmbedding(32, width=457)
    assert scheme.num_parameters == 1024 * 457 + 4 * 457**2 + 457 * 32 + 5 * 457 + 32 + 2 * 5 * 457


def test_no_hidden_layer_is_a_linear_map():
    network = EmbeddingNetwork(32, 8, width=4, depth=0)
    assert network.num_experts == 1
    assert [key for key, _ in network.named_parameters()] == ["output.weight", "output.bias"]


@pytest.mark.parametrize("bad", [{"architecture": "round"}, {"activation": "x"}, {"normalization": "layer"}])
def test_an_unknown_choice_lists_the_known_ones(bad):
    with pytest.raises(ValueError, match="it must be one of"):
        EmbeddingNetwork(32, 8, width=4, **bad)


@pytest.mark.parametrize("bad", [{"width": 0}, {"width": 4, "num_experts": 0}, {"width": 4, "depth": -1}])
def test_impossible_sizes_are_refused(bad):
    with pytest.raises(ValueError, match="it must be at least"):
        EmbeddingNetwork(32, 8, **bad)


def test_batch_norm_agrees_with_torch():
    ours, theirs = BatchNorm(16), nn.BatchNorm1d(16)
    for _ in range(3):
        rows = torch.randn(20, 16) * 3 + 1
        torch.testing.assert_close(ours(rows), theirs(rows))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    assert ours.num_batches_tracked == theirs.num_batches_tracked == 3
    torch.testing.assert_close(ours.eval()(rows), theirs.eval()(rows))


def test_batch_norm_of_a_single_row_uses_running_statistics_and_leaves_them_alone():
    norm = BatchNorm(4)
    norm(torch.randn(50, 4) + 5)
    before = norm.running_mean.clone(), norm.running_var.clone()
    row = torch.randn(1, 4)
    trained = norm(row)
    assert torch.equal(trained, norm.eval()(row))
    assert torch.equal(norm.running_mean, before[0])
    assert torch.equal(norm.running_var, before[1])
    assert norm.num_batches_tracked == 1


def expert_by_expert(network, rows, experts):
    """The same network as a Python loop over experts, each a network of its own."""
    result = torch.empty(len(rows), network.embedding_dim)
    for expert in range(network.num_experts):
        single = EmbeddingNetwork(network.code_dim, network.embedding_dim, width=24, depth=3)
        state = {
            key: value if key.endswith("tracked") else value[expert] for key, value in network.state_dict().items()
        }
        single.load_state_dict(state)
        single.train(network.training)
        mine = experts == expert
        result[mine] = single(rows[mine])
    return result


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "experts",
    [
        torch.arange(60) % 4,
        torch.zeros(60, dtype=torch.int64),  # everyone with one expert
        torch.tensor([3] * 58 + [1, 0]),  # two experts with a single id, one with none
    ],
    ids=["even", "one", "uneven"],
)
def test_experts_in_one_batched_product_equal_a_loop_and_drop_nobody(training, experts):
    network = EmbeddingNetwork(32, 8, width=24, depth=3, num_experts=4, initial_std=1.0)
    network(codes(200), torch.arange(200) % 4)  # move the running statistics
    network.train(training)
    expected = expert_by_expert(network, codes(60), experts)
    torch.testing.assert_close(network(codes(60), experts), expected, atol=1e-5, rtol=1e-4)


def test_gradients_through_experts_equal_those_of_a_loop():
    experts = torch.tensor([0] * 40 + [1] * 15 + [3] * 5)
    weights = torch.randn(60, 8, generator=torch.Generator().manual_seed(2))
    network = EmbeddingNetwork(32, 8, width=24, depth=3, num_experts=4, normalization="none")
    (network(codes(60), experts) * weights).sum().backward()
    output = network.output
    single = EmbeddingNetwork(32, 8, width=24, depth=3, normalization="none")
    single.load_state_dict({key: value[1] for key, value in network.state_dict().items()})
    (single(codes(60)[40:55]) * weights[40:55]).sum().backward()
    torch.testing.assert_close(output.weight.grad[1], single.output.weight.grad)
    assert output.weight.grad[2].abs().max() == 0


def test_experts_share_the_ids_evenly_and_independently_of_the_code():
    scheme = DeepHashEmbedding(8, width=8, num_hashes=64, num_experts=4)
    ids = torch.arange(40_000)
    experts = scheme.router(ids)[..., 0]
    assert (experts.bincount(minlength=4) / 40_000 - 0.25).abs().max() < 0.01
    one_hot = torch.nn.functional.one_hot(experts, 4) - 0.25
    correlation = scheme.encoder(ids).T @ one_hot.float() / 40_000
    assert correlation.abs().max() < 0.02


def test_experts_keep_the_budget_and_divide_the_arithmetic():
    one, four = (
        DeepHashEmbedding.from_budget(400_000, embedding_dim=32, vocab_size=10**6, num_experts=number)
        for number in (1, 4)
    )
    assert 390_000 < four.num_parameters <= 400_000
    assert four.num_parameters / 4 < one.num_parameters / 3.8


def test_grouping_brings_every_row_back():
    groups = torch.tensor([2, 0, 2, 2, 1, 0])
    rows = torch.arange(12.0).view(6, 2)
    grouping = Grouping(groups, 4)
    assert grouping.counts.tolist() == [2, 1, 3, 0]
    block = grouping.scatter(rows)
    assert block.shape == (4, 3, 2)
    assert torch.equal(block[2], rows[[0, 2, 3]])
    assert torch.equal(grouping.gather(block), rows)

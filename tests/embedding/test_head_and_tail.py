import pytest
import torch

from tableless import DeepHashEmbedding, SideFeatures, distil
from tableless.embedding.head_and_tail import HeadAndTail

FREQUENCIES = torch.arange(1000)  # the highest ids are the most frequent


def make(**options):
    return HeadAndTail.from_budget(
        "1/2 parameters", embedding_dim=8, vocab_size=1000, frequencies=FREQUENCIES, **options
    )


def test_the_most_frequent_ids_have_rows_and_the_others_are_computed():
    scheme = make(head_share=0.5).eval()
    assert scheme.num_frequent == 250
    vectors = scheme(torch.arange(1000))
    assert torch.equal(vectors[750:], scheme.head.table)
    torch.testing.assert_close(vectors[:750], scheme.tail(torch.arange(750)))


def test_rows_and_network_share_one_budget():
    for share in (0.0, 0.3, 0.7):
        scheme = make(head_share=share)
        assert scheme.head.table.numel() == int(4000 * share) // 8 * 8
        assert 4000 - 600 < scheme.num_parameters <= 4000


def test_rows_and_network_share_one_budget_of_bytes_in_which_the_ids_of_rows_count():
    for share in (0.0, 0.3, 0.7):
        scheme = HeadAndTail.from_budget("32000B", embedding_dim=8, vocab_size=1000, head_share=share)
        assert scheme.num_frequent == int(32_000 * share) // (8 * 4 + 8)
        assert scheme.bytes_by_part().get("list of ids", 0) == scheme.num_frequent * 8
        assert 32_000 - 2400 < scheme.num_bytes <= 32_000


def test_without_rows_it_is_the_network():
    alone = DeepHashEmbedding.from_budget("1/2 parameters", embedding_dim=8, vocab_size=1000).eval()
    ids = torch.arange(-50, 50)
    torch.testing.assert_close(make(head_share=0.0).eval()(ids), alone(ids))


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_leaves_no_network_is_refused(share):
    with pytest.raises(ValueError, match="head_share"):
        make(head_share=share)


@pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")
def test_rows_of_a_trained_table_are_kept_to_the_bit_and_only_the_rest_is_learned():
    table = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
    scheme = make(head_share=0.5)
    result = distil(table, scheme, visits=30, batch_size=250)
    vectors = scheme(torch.arange(1000)).detach()
    assert torch.equal(vectors[750:], table[750:])
    assert result.steps == 30 * 3  # of 750 rows
    error = (vectors[:750] - table[:750]).square().sum() / (table - table.mean(0)).square().sum()
    assert result.unexplained == pytest.approx(float(error), rel=1e-3)
    assert result.unexplained < 0.72  # what knowing nothing of the tail would leave is .75


def test_a_table_that_has_rows_for_the_head_only_leaves_nothing_to_learn():
    table = torch.randn(250, 8)
    scheme = make(head_share=0.5)
    result = distil(table, scheme, ids=torch.arange(750, 1000))
    assert (result.steps, result.unexplained) == (0, 0.0)


def test_side_features_reach_the_network_with_their_rows():
    side = SideFeatures.from_matrix(torch.arange(1000), torch.ones(1000, 3))
    scheme = make(side_features=side)
    assert scheme.tail.side_features(torch.tensor([5])).tolist() == [[1, 1, 1, 1]]
    assert HeadAndTail(**scheme.config).config == scheme.config


def test_frequencies_must_count_every_id():
    with pytest.raises(ValueError, match="one count per id"):
        HeadAndTail.from_budget("1/2", embedding_dim=8, vocab_size=1000, frequencies=FREQUENCIES[:500])

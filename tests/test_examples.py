"""The examples do what they say, as they stand."""

import pytest


def test_a_plain_model_keeps_its_accuracy_when_its_tables_are_replaced():
    from examples import replace_nn_embedding

    auc = replace_nn_embedding.main()
    assert auc["tables"] > 0.8
    assert auc["replaced"] > auc["tables"] - 0.02
    assert auc["trained on"] > auc["tables"] - 0.01


def test_a_model_of_several_features_and_bags_learns():
    from examples import dlrm_with_bags

    losses = dlrm_with_bags.main()
    assert losses[0] > 0.68
    assert losses[-1] < 0.59


def test_a_trained_table_becomes_a_network_of_its_size_with_little_loss():
    from examples import convert_a_table

    lost = convert_a_table.main()
    assert lost["1/1"] < 0.1
    assert lost["1/1"] < lost["1/2"] < 0.4


def test_two_towers_find_more_than_popularity_does():
    pytest.importorskip("faiss", reason="pip install 'tableless[serve]'")
    from examples import two_tower_retrieval

    recall = two_tower_retrieval.main()
    assert 1.3 * recall["popularity"] < recall["two towers"] < recall["best possible"]


def test_on_a_stream_shared_rows_learn_faster_at_first_and_deep_hashes_better_in_the_end():
    from examples import online_learning

    auc = online_learning.main()
    assert auc["hashing trick"][0] > auc["deep hash"][0]
    assert auc["deep hash"][-1] > auc["hashing trick"][-1] + 0.02
    assert auc["deep hash, told topics"][-1] > auc["deep hash"][-1] + 0.04

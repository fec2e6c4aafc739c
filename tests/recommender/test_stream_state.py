import pytest
import torch

from tableless.files.whole import load_tensors, save_tensors
from tableless.recommender.stream_state import restore, state_of
from tableless.recommender.streaming import learn_stream
from tests.recommender.test_stream_learner import actions, batches, learner


@pytest.mark.parametrize("adapts", [True, False])
def test_a_restored_learner_goes_on_as_the_other_would_have(adapts, tmp_path):
    users, items = actions(6_000)
    first = learner("40KB", adapts=adapts)
    learn_stream(first, batches(users[:3_000], items[:3_000]))
    save_tensors(state_of(first), tmp_path / "state.safetensors")
    second = learner("40KB", adapts=adapts)
    restore(second, load_tensors(tmp_path / "state.safetensors"))
    reports = [learn_stream(own, batches(users[3_000:], items[3_000:])) for own in (first, second)]
    assert reports[0] == reports[1]
    states = [state_of(own) for own in (first, second)]
    assert states[0].keys() == states[1].keys()
    assert [name for name, value in states[0].items() if not torch.equal(value, states[1][name])] == []


def test_a_state_is_a_copy():
    own = learner("40KB")
    learn_stream(own, batches(*actions(1_000)))
    state = state_of(own)
    before = {name: value.clone() for name, value in state.items()}
    learn_stream(own, batches(*actions(1_000, seed=1)))
    assert all(torch.equal(value, before[name]) for name, value in state.items())


def test_the_state_of_another_size_is_refused():
    own = learner("120KB")
    learn_stream(own, batches(*actions(500)))
    with pytest.raises(ValueError, match="a learner of another size"):
        restore(learner("40KB"), state_of(own))

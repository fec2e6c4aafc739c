import torch

from tableless.recommender.batches import Batch
from tableless.recommender.runs import ModelConfig, build_model
from tableless.recommender.scoring import what_happened, what_is_expected
from tests.data.tiny import small_split

BATCH = Batch(
    users=torch.tensor([3, 5]),
    items=torch.tensor([7, 2, 9]),
    user=torch.tensor([1, 0]),
    item=torch.tensor([[0, 1], [2, 0]]),
    weight=None,
)


def test_what_happened_is_the_first_of_each_row():
    assert what_happened(BATCH).tolist() == [[1, 0], [1, 0]]


def test_a_teacher_expects_by_rows_what_its_own_scores_say():
    split = small_split()
    teacher = build_model(ModelConfig(scheme="full"), split, seed=0)

    expected = what_is_expected(teacher, split)(BATCH)

    scores = teacher(torch.tensor([5, 3]), torch.tensor([[7, 2], [9, 7]]))
    torch.testing.assert_close(expected, scores.sigmoid())
    assert not expected.requires_grad

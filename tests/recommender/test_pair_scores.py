from itertools import pairwise

import torch

from tableless.recommender.pair_scores import after_first, score_everything, score_pairs


def layers(generator, *sizes):
    def draw(*shape):
        return torch.randn(*shape, generator=generator).requires_grad_()

    return [(draw(after, before), draw(after)) for before, after in pairwise(sizes)]


def test_scores_and_gradients_in_chunks_are_those_of_the_plain_operations():
    generator = torch.Generator().manual_seed(0)
    stack = layers(generator, 16, 8, 4, 1)
    users, items = (torch.randn(n, 16, generator=generator).requires_grad_() for n in (6, 9))
    user, item = (torch.randint(0, n, shape, generator=generator) for n, shape in ((6, (400,)), (9, (400, 3))))
    weights = torch.randn(400, 3, generator=generator)
    parameters = [users, items, *(tensor for layer in stack for tensor in layer)]
    chunked = score_pairs(users, items, user, item, stack)  # 1,200 pairs: two chunks and a part of one
    plain = after_first(users[user].unsqueeze(-2) + items[item], stack)
    results = [(scores, *torch.autograd.grad((scores * weights).sum(), parameters)) for scores in (chunked, plain)]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_every_pair_has_the_score_it_has_alone():
    generator = torch.Generator().manual_seed(1)
    stack = layers(generator, 8, 4, 1)
    users, items = torch.randn(70, 8, generator=generator), torch.randn(600, 8, generator=generator)
    everything = score_everything(users, items, stack)
    torch.testing.assert_close(everything, after_first(users.unsqueeze(-2) + items, stack).detach())
    assert score_everything(users[:0], items, stack).shape == (0, 600)

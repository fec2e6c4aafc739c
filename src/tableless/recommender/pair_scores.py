"""Scores of many pairs that repeat their users and items: the inner loops of training and evaluating.

In plain torch operations, most of a training step goes into a copy of both vectors for every pair, and into scattering
a gradient for each. A compiled loop over the distinct vectors, which fit the cache, needs no copies.

- GMF: `pair_products` are the inner products of pairs.
- MLP: the first layer is linear in user and item. It is computed once for each distinct one, and only added up for a
  pair. `score_pairs` and `score_everything` take the pairs through the other layers in chunks whose activations stay in
  the cache. Over the whole batch at once, moving memory would take as long as the matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.resources import in_parallel

_CHUNK = 512  # pairs: 256 numbers each are half a megabyte

Layers = Sequence[tuple[Tensor, Tensor]]
"""Weight [outputs, inputs] and bias of each layer after the first; all but the last are followed by a ReLU."""


def pair_products(users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
    """Vectors [distinct users, dim] and [distinct items, dim], positions [batch] and [batch, n] -> [batch, n]."""
    if users.device.type == "cpu" and not torch.compiler.is_exporting():
        return _pair_products(users, items, user, item)
    return torch.bmm(items[item], users[user].unsqueeze(-1)).squeeze(-1)


@torch.library.custom_op("tableless::pair_products", mutates_args=(), device_types="cpu")
def _pair_products(users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
    from ..kernels import pair_loops as loops

    out = torch.empty(item.shape)
    vectors = users.detach().contiguous().numpy(), items.detach().contiguous().numpy()
    loops.inner_products(*vectors, user.contiguous().numpy(), item.contiguous().numpy(), out.numpy())
    return out


@_pair_products.register_fake
def _(users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
    return torch.empty(item.shape)


@torch.library.custom_op("tableless::pair_gradients", mutates_args=(), device_types="cpu")
def _pair_gradients(
    gradient: Tensor, users: Tensor, items: Tensor, user: Tensor, item: Tensor
) -> tuple[Tensor, Tensor]:
    from ..kernels import pair_loops as loops

    of_users, of_items = torch.zeros_like(users), torch.zeros_like(items)
    loops.pair_gradients(
        gradient.contiguous().numpy(),
        users.detach().contiguous().numpy(),
        items.detach().contiguous().numpy(),
        user.contiguous().numpy(),
        item.contiguous().numpy(),
        of_users.numpy(),
        of_items.numpy(),
    )
    return of_users, of_items


@_pair_gradients.register_fake
def _(gradient: Tensor, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(users), torch.empty_like(items)


def _keep_inputs(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _products_backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
    of_users, of_items = _pair_gradients(gradient, *ctx.saved_tensors)  # type: ignore[attr-defined]
    return of_users, of_items, None, None


_pair_products.register_autograd(_products_backward, setup_context=_keep_inputs)


def score_pairs(users: Tensor, items: Tensor, user: Tensor, item: Tensor, layers: Layers) -> Tensor:
    """What the first layer makes of distinct users and items, positions [batch] and [batch, n] -> scores [batch, n]."""
    if users.device.type == "cpu" and not torch.compiler.is_compiling():
        flat = [tensor for layer in layers for tensor in layer]
        pairs = user.unsqueeze(-1).expand_as(item).reshape(-1), item.reshape(-1)
        return _ScorePairs.apply(users, items, *pairs, *flat).view(item.shape)  # type: ignore[no-untyped-call]
    return after_first(users[user].unsqueeze(-2) + items[item], layers)


def after_first(sums: Tensor, layers: Layers) -> Tensor:
    """Sums of the first layer's halves [..., width] -> scores [...], in plain operations."""
    for weight, bias in layers:
        sums = F.linear(torch.relu(sums), weight, bias)
    return sums.squeeze(-1)


def score_everything(users: Tensor, items: Tensor, layers: Layers, *, lists: Tensor | None = None) -> Tensor:
    """First-layer halves [users, width] and [items, width] -> scores [users, items], without a gradient.

    With `lists` [users, n], positions of items, each user is scored with the items of their own list: [users, n].
    """
    count = len(items) if lists is None else lists.shape[1]
    scores = torch.empty(len(users), count, device=users.device)

    def score(start: int, stop: int) -> None:
        with torch.inference_mode():  # this may be another thread than the caller's
            buffers = [users.new_empty(_CHUNK, width) for width in (users.shape[1], *(len(bias) for _, bias in layers))]
            for row in range(start, stop):
                for first in range(0, count, _CHUNK):
                    chunk = slice(first, first + _CHUNK)
                    part = items[chunk] if lists is None else items[lists[row, chunk]]
                    values = torch.add(part, users[row], out=buffers[0][: len(part)])
                    for (weight, bias), buffer in zip(layers, buffers[1:], strict=True):
                        values = torch.addmm(bias, values.relu_(), weight.mT, out=buffer[: len(part)])
                    scores[row, chunk] = values[:, 0]

    in_parallel(score, len(users), fewest=32)
    return scores


class _ScorePairs(torch.autograd.Function):
    """Positions are [pairs]; the layers' weights and biases follow one after the other."""

    @staticmethod
    def forward(ctx: Any, users: Tensor, items: Tensor, user: Tensor, item: Tensor, *flat: Tensor) -> Tensor:
        """Keeps what each ReLU lets through, for the way back; the sums are made again, which costs less."""
        layers = list(zip(flat[::2], flat[1::2], strict=True))
        hidden = [torch.empty(len(user), len(bias)) for _, bias in layers]
        sums = torch.empty(min(_CHUNK, len(user)), users.shape[1])
        for part in _in_chunks(len(user)):
            values = _add_pairs(users, items, user[part], item[part], sums)
            for (weight, bias), after in zip(layers, hidden, strict=True):
                values = torch.addmm(bias, values, weight.mT, out=after[part])
                if after is not hidden[-1]:
                    values.relu_()
        ctx.save_for_backward(users, items, user, item, *flat, *hidden[:-1])
        ctx.num_layers = len(layers)
        return hidden[-1][:, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """As the chain rule says, chunk by chunk."""
        users, items, user, item, *rest = ctx.saved_tensors
        flat, hidden = rest[: 2 * ctx.num_layers], rest[2 * ctx.num_layers :]
        to_flat = [torch.zeros_like(tensor) for tensor in flat]
        to_users, to_items = torch.zeros_like(users), torch.zeros_like(items)
        sums = torch.empty(min(_CHUNK, len(user)), users.shape[1])
        for part in _in_chunks(len(user)):
            inputs = [_add_pairs(users, items, user[part], item[part], sums), *(after[part] for after in hidden)]
            gradient = gradients[0][part].unsqueeze(-1)
            for number in reversed(range(ctx.num_layers)):
                to_flat[2 * number].addmm_(gradient.mT, inputs[number])
                to_flat[2 * number + 1].add_(gradient.sum(0))
                gradient = gradient @ flat[2 * number]
                if number:
                    gradient = torch.ops.aten.threshold_backward(gradient, inputs[number], 0)
            _scatter_gradient(gradient, inputs[0], user[part], item[part], to_users, to_items)
        return to_users, to_items, None, None, *to_flat


def _in_chunks(count: int) -> list[slice]:
    return [slice(start, start + _CHUNK) for start in range(0, count, _CHUNK)]


def _add_pairs(users: Tensor, items: Tensor, user: Tensor, item: Tensor, out: Tensor) -> Tensor:
    from ..kernels import pair_loops as loops

    out = out[: len(user)]
    vectors = users.detach().contiguous().numpy(), items.detach().contiguous().numpy()
    loops.pair_sums(*vectors, user.contiguous().numpy(), item.contiguous().numpy(), out.numpy())
    return out


def _scatter_gradient(
    gradient: Tensor, hidden: Tensor, user: Tensor, item: Tensor, to_users: Tensor, to_items: Tensor
) -> None:
    from ..kernels import pair_loops as loops

    arrays = (gradient, hidden, user.contiguous(), item.contiguous(), to_users, to_items)
    loops.scatter_pairs(*(tensor.numpy() for tensor in arrays))

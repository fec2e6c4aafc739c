"""Inner products of many pairs that repeat their members: the inner loop of training GMF.

Gathering a copy of both vectors for every pair, and scattering a gradient for each, is most of a training step in plain
torch operations; one compiled loop over the distinct vectors, which fit the cache, does without the copies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..embedding.hashing import NUMBA_IS_INSTALLED


def pair_products(users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
    """Vectors [distinct users, dim] and [distinct items, dim], positions [batch] and [batch, n] -> [batch, n]."""
    if users.device.type == "cpu" and NUMBA_IS_INSTALLED and not torch.compiler.is_exporting():
        return _pair_products(users, items, user, item)
    return torch.bmm(items[item], users[user].unsqueeze(-1)).squeeze(-1)


@torch.library.custom_op("tableless::pair_products", mutates_args=(), device_types="cpu")
def _pair_products(users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
    from . import kernels

    out = torch.empty(item.shape)
    vectors = users.detach().contiguous().numpy(), items.detach().contiguous().numpy()
    kernels.pair_products(*vectors, user.contiguous().numpy(), item.contiguous().numpy(), out.numpy())
    return out


@_pair_products.register_fake
def _(users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
    return torch.empty(item.shape)


@torch.library.custom_op("tableless::pair_gradients", mutates_args=(), device_types="cpu")
def _pair_gradients(
    gradient: Tensor, users: Tensor, items: Tensor, user: Tensor, item: Tensor
) -> tuple[Tensor, Tensor]:
    from . import kernels

    of_users, of_items = torch.zeros_like(users), torch.zeros_like(items)
    kernels.pair_gradients(
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


def _remember(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
    of_users, of_items = _pair_gradients(gradient, *ctx.saved_tensors)  # type: ignore[attr-defined]
    return of_users, of_items, None, None


_pair_products.register_autograd(_backward, setup_context=_remember)

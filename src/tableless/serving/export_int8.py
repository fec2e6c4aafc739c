"""The linear layers of an exported model with weights of one byte each."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .quantization import round_weights


class Int8Linear(nn.Module):
    """A linear layer that keeps its weights as int8 and a scale for each output, and multiplies in float32.

    Activations are not rounded: a network that memorises amplifies that (docs/decisions.md), and with ranges taken from
    the batch an id's vector would depend on the ids beside it.
    """

    integers: Tensor  # int8 [outputs, inputs]
    scale: Tensor  # float32 [outputs]

    def __init__(self, linear: nn.Linear, sample: Tensor) -> None:
        super().__init__()
        integers, scale = round_weights(linear.weight.T, sample)
        self.register_buffer("integers", integers.T.contiguous())
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    @property
    def weight(self) -> Tensor:
        """Float32 [outputs, inputs]."""
        if torch.onnx.is_in_onnx_export():  # ONNX has an operator that its optimisers know not to compute in advance
            return torch.onnx.ops.symbolic(
                "DequantizeLinear",
                (self.integers, self.scale),
                attrs={"axis": 0},
                dtype=torch.float32,
                shape=self.integers.shape,
            )
        return self.integers.to(torch.float32) * self.scale.unsqueeze(-1)

    def forward(self, rows: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return F.linear(rows, self.weight, self.bias)


@torch.no_grad()
def round_linear_layers(module: nn.Module, *sample_inputs: Tensor) -> None:
    """Put an `Int8Linear` in the place of every linear layer, rounded for what it sees when given the sample.

    A layer whose weights are used without calling it, as the MLP's are, sees nothing: its inputs count as unrelated,
    and each weight goes to the nearest step.
    """
    seen: dict[str, Tensor] = {}
    linears = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    hooks = [part.register_forward_pre_hook(partial(_remember, seen, name)) for name, part in linears.items()]
    module(*sample_inputs)
    for hook in hooks:
        hook.remove()
    for name, linear in linears.items():
        parent, _, own_name = name.rpartition(".")
        sample = seen.get(name, torch.eye(linear.in_features))
        module.get_submodule(parent).add_module(own_name, Int8Linear(linear, sample))


def is_int8(module: nn.Module) -> bool:
    """Has it a layer with weights of one byte?"""
    return any(isinstance(part, Int8Linear) for part in module.modules())


def _remember(seen: dict[str, Tensor], name: str, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    seen[name] = inputs[0].reshape(-1, inputs[0].shape[-1])

"""Vectors on a plane, to be looked at."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


@torch.inference_mode()
def on_a_plane(vectors: Tensor) -> Tensor:
    """[n, dim] -> [n, 2]: the first two principal components, each with its largest weight positive."""
    centred = vectors - vectors.mean(dim=0)
    _, directions = torch.linalg.eigh(centred.T @ centred)  # by ascending variance
    plane = directions[:, -2:].flip(-1)  # [dim, 2]
    largest = plane.gather(0, plane.abs().argmax(dim=0, keepdim=True))
    return pad(centred @ (plane * largest.sign()), (0, 2 - plane.shape[-1]))  # vectors of one number lie on a line

"""Codes of few bits, packed into bytes.

The codes of an id stand one after the other, the lowest bit first, and begin with a whole byte. So it is in faiss.
"""

from __future__ import annotations

import torch
from torch import Tensor


def bytes_for(count: int, bits: int) -> int:
    """The bytes that `count` codes of so many bits take."""
    return -(-count * bits // 8)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Int64 [..., count], each from 0 to 2^bits - 1 -> uint8 [..., bytes]."""
    count = codes.shape[-1]
    first, shift, num_bytes = _places(count, bits, codes.device)
    shifted = codes << shift
    # A code may reach into the bytes that follow. The last of those may not exist; nothing is written there.
    out = codes.new_zeros(*codes.shape[:-1], bytes_for(count, bits) + num_bytes)
    for place in range(num_bytes):  # no two codes have a bit in common, so that a sum is enough
        out.index_add_(-1, first + place, (shifted >> (8 * place)) & 255)
    return out[..., : bytes_for(count, bits)].to(torch.uint8)


def unpack_codes(packed: Tensor, count: int, bits: int) -> Tensor:
    """What `pack_codes` was given: uint8 [..., bytes] -> int64 [..., count]. These are plain torch operations."""
    first, shift, num_bytes = _places(count, bits, packed.device)
    last = packed.shape[-1] - 1
    whole = packed[..., first].long()
    for place in range(1, num_bytes):  # bits beyond the last byte do not belong to the code, and are masked below
        whole = whole | (packed[..., (first + place).clamp(max=last)].long() << (8 * place))
    return torch.bitwise_right_shift(whole, shift) & (2**bits - 1)  # `>>` with a tensor is not in ONNX


def _places(count: int, bits: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """The byte in which each code begins, at which of its bits, and how many bytes a code reaches into at most."""
    begin = torch.arange(count, device=device) * bits
    most = max(start * bits % 8 for start in range(min(count, 8))) + bits
    return begin // 8, begin % 8, -(-most // 8)

"""Watch: have the weights of a module changed since they were last used?"""

from __future__ import annotations

from torch import Tensor, nn


class Watch:
    """Remembers the parameters and buffers of a module, and tells whether they have changed since.

    That costs a glance at each tensor: torch counts how often it was written to.
    """

    def __init__(self, module: nn.Module) -> None:
        self._seen: list[tuple[dict[str, Tensor | None], str, Tensor, int]] = []
        for part in module.modules():
            for owner in (part._parameters, part._buffers):
                for name, tensor in owner.items():
                    if tensor is not None:
                        self._seen.append((owner, name, tensor, _version(tensor)))  # type: ignore[arg-type]

    def has_changed(self) -> bool:
        """Has a tensor been written to, or replaced by another? (Torch does not count writing to `.data`.)"""
        return any(
            owner[name] is not tensor or tensor._version != version for owner, name, tensor, version in self._seen
        )


def _version(tensor: Tensor) -> int:
    if tensor.is_inference():
        raise ValueError(
            "the scheme was built under torch.inference_mode(), where torch does not record changes; build it outside"
        )
    return tensor._version

"""`python -m tableless` and `torchrun -m tableless`."""

from __future__ import annotations

from .cli import main

main()

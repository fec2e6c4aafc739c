"""`python -m tableless` and `torchrun -m tableless`."""

from .cli import main

main()

"""The paper's tables and figures, and ours: a file each. `python -m experiments` runs them all."""

"""How fast and how small, one file per question; run with `make bench`."""

# Needs nothing but Python and make: every target makes .venv first if it is missing.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint types bench experiments

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/tableless demo --out out/demo

test: setup
	$(BIN)/python -m pytest -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

# Hours; stop and start it as you like, finished runs are kept. The data is looked for in $TABLELESS_DATA.
experiments: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments

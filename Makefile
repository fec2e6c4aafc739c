# Needs nothing but Python and make: every target makes .venv first if it is missing.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint types bench experiments docs package

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/tableless demo --out out/demo

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

# Takes hours. You can stop and start it at any time: finished runs are kept. It looks for the data in $TABLELESS_DATA.
# After six hours it begins no new run; start it again to go on.
experiments: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments --minutes 360

docs: setup
	$(BIN)/mkdocs build --strict

# Builds the release, installs it in an empty environment and tries it: first the wheel alone, then the sdist with the
# commands. Takes some minutes.
package: setup
	rm -rf dist out/empty
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv out/empty
	out/empty/bin/pip install --quiet -c constraints.txt dist/*.whl
	cd out && empty/bin/python -c "import tableless; print(tableless.embedding_for('1/16', embedding_dim=8, vocab_size=1000))"
	out/empty/bin/pip uninstall --quiet --yes tableless
	out/empty/bin/pip install --quiet -c constraints.txt "$$(ls dist/*.tar.gz)[cli,data]"
	out/empty/bin/tableless train world:users=200,items=120,actions=6000 --epochs 1

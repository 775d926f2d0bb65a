# Each target makes the environment by itself: a virtual environment in .venv, with the tested versions of constraints.txt.
#
#   make quickstart    train a small Transformer on number names and translate with it (English to German)
#   make test          run the tests
#   make check         what continuous integration runs: format, lint, strict types, documentation, tests
#   make docs          build the documentation's site in build/site; a broken link is an error
#   make faults        make many faults on purpose, and count what is lost: docs/reliability.md
#   make install       only make the environment
#   make clean         remove the environment, caches and the quickstart's output

PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install quickstart test check docs faults format clean

help:
	@sed -n 's/^#   //p' Makefile

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "error: Python 3.11, 3.12 or 3.13 is needed; $(PYTHON) is not one. Try: make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv || \
		{ echo "error: no virtual environment could be made. On Debian: apt install python3-venv" >&2; exit 1; }
	@echo "Installing the tested versions of constraints.txt into .venv; a few minutes the first time."
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

quickstart: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" recipes/quickstart.sh

# One thread for each worker: two workers on two cores would otherwise fight over them. A file's tests share what they
# have trained, so they stay together.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) docs
	$(MAKE) test

docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo 'built: build/site/index.html'

# One after the other: a fault must meet its own run alone. The few of them that `make test` makes take a minute.
faults: $(STAMP)
	OMP_NUM_THREADS=1 NMT_FAULTS=long $(BIN)/python -m pytest tests/faults -p no:xdist --timeout 3600 --durations 10

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis runs

# Every target first makes the environment: .venv, with the tested versions of constraints.txt.
#
#   make quickstart    train a small Transformer on number names and translate with it (English to German)
#   make test          run the tests
#   make test-core     run the core's tests, which take a third of the time: before each commit
#   make test-kernels  run the kernels of GPUs on the CPU, in Triton's interpreter, and compile them for two GPUs
#   make test-versions run the tests with torch 2.11, 2.13 and the newest one, and the newest of all other packages
#   make check         what continuous integration runs: format, lint, strict types, documentation, tests
#   make lint          check format, lint and strict types
#   make docs          build the documentation's site in build/site, with the tutorial's blocks executed; a broken link
#                      or a block that fails is an error
#   make mutants       break the code in each listed way and check that its tests fail: CONTRIBUTING.md
#   make faults        run the long tests of faults and recipes: docs/reliability.md
#   make bench         measure the speed of training and translation: docs/results.md
#   make install       make the environment only
#   make release       build the wheel, the source distribution and an SBOM in dist, and try the wheel: CONTRIBUTING.md
#   make lock          write requirements-lock.txt, the hashes of what constraints.txt allows: SECURITY.md
#   make clean         remove the environment, caches and the quickstart's output

PYTHON ?= python3
WORKERS ?= 2
VERSIONS ?= torch==2.11.0 torch==2.13.0 torch
TESTS ?=

# The tests and the examples of the documentation start hundreds of programs, which start faster from cached bytecode.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
TEST := -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install quickstart test test-core test-kernels test-versions check lint docs mutants faults bench format release lock clean

help:
	@sed -n 's/^#   //p' Makefile

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "error: $(PYTHON) is not Python 3.11, 3.12 or 3.13. Try: make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv || \
		{ echo "error: cannot create a virtual environment. On Debian: apt install python3-venv" >&2; exit 1; }
	@echo "Installing the tested versions of constraints.txt into .venv; a few minutes the first time."
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

quickstart: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" recipes/quickstart.sh

# One thread for each worker, so that workers do not compete for cores. The tests of a file share trained models, so
# they run in the same worker. They run in the order of their names: xdist's own order ends with the files of one or two
# tests, which take the longest.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python $(TEST)

# Without the tests of annexes, recipes and faults, and without what starts whole commands. The branch of a GPU takes as
# long as a quarter of the rest.
CORE := tests/unit tests/contracts tests/paper tests/test_architecture.py tests/test_reading.py tests/test_mutants.py
test-core: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python $(TEST) $(CORE) --ignore tests/contracts/test_gpu_branch.py

# In an environment of its own: the interpreter needs an older NumPy, and Triton has 188 MB.
KERNELS := tests/unit/fast/cuda/test_operators.py tests/unit/fast/cuda/test_*kernels.py
test-kernels: $(STAMP)
	test -x .venv-kernels/bin/pip || $(PYTHON) -m venv .venv-kernels
	.venv-kernels/bin/pip install --quiet --disable-pip-version-check --no-deps triton==3.6.0 'numpy==2.2.6'
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > \
		"$$(.venv-kernels/bin/python -c 'import site; print(site.getsitepackages()[0])')/packages.pth"
	set -e; for interpret in 1 0; do \
		TRITON_INTERPRET=$$interpret OMP_NUM_THREADS=1 PYTHONPATH=. \
			.venv-kernels/bin/python -m pytest -q $(KERNELS); \
	done

# VERSIONS=torch takes the newest one only, and TESTS=tests/unit some tests. Each version has an environment.
test-versions:
	@set -eux; for version in $(VERSIONS); do \
		test -x .venv-$$version/bin/pip || $(PYTHON) -m venv .venv-$$version; \
		.venv-$$version/bin/python -m pip install --upgrade --upgrade-strategy eager $$version --editable '.[dev]'; \
		OMP_NUM_THREADS=1 .venv-$$version/bin/python $(TEST) $(TESTS); \
	done

# The documentation runs its examples in one thread, beside the checks of types.
check: $(STAMP)
	$(MAKE) --jobs 2 lint docs
	$(MAKE) test

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo 'built: build/site/index.html'

# MUTANTS="NAME ..." tries these only.
mutants: $(STAMP)
	WORKERS=$(WORKERS) $(BIN)/python -m tests.mutants $(MUTANTS)

# Without parallel workers: a fault must hit its own run only. `make test` runs a short selection.
faults: $(STAMP)
	OMP_NUM_THREADS=1 NMT_FAULTS=long $(BIN)/python -m pytest tests/faults tests/recipes -p no:xdist --timeout 3600 --durations 10

# BENCH="--python huggingface=PATH ..." gives the interpreters of the programs to compare translation with, and other
# flags; TRAINING="--python fairseq=PATH ..." those of training.
bench: $(STAMP)
	$(BIN)/python -m benchmarks.training $(TRAINING)
	$(BIN)/python -m benchmarks.translation $(BENCH)

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The wheel alone, in an environment of its own, runs the quickstart. The SBOM lists what that environment has.
release: $(STAMP)
	rm -rf build/release dist && $(PYTHON) -m venv build/release/tools && $(PYTHON) -m venv build/release/user
	build/release/tools/bin/pip install --quiet build==1.6.1 cyclonedx-bom==7.5.0 twine==7.0.0
	build/release/tools/bin/python -m build --outdir dist
	build/release/tools/bin/twine check --strict dist/*
	build/release/user/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	build/release/tools/bin/cyclonedx-py environment build/release/user/bin/python --pyproject pyproject.toml \
		--output-reproducible --output-file dist/sbom.json
	build/release/user/bin/pip install --quiet --constraint constraints.txt num2words
	cd build/release && user/bin/nmt recipes --out recipes && PATH="$$PWD/user/bin:$$PATH" recipes/quickstart.sh
	build/release/user/bin/pip install --quiet --no-deps --force-reinstall dist/*.tar.gz
	build/release/user/bin/nmt recipes

lock: $(STAMP)
	$(BIN)/python .ci/lock.py

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis runs

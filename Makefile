# Two commands do all set-up on a machine with Python 3.10+ and nothing else: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Most tests wait for one process to import TensorFlow: two files at a time fill two cores.
PYTEST ?= $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: help demo test check lint types contracts bench clean

help:
	@echo "make demo    train the credit-risk model on two workers, kill one, watch it resume"
	@echo "make test    all tests (under 12 minutes on 2 cores)"
	@echo "make check   ruff, mypy --strict, import contracts"
	@echo "make bench   the measurements that the documents quote"
	@echo "make clean   remove the virtual environment and caches"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "phalanx needs Python 3.10 to 3.13; '$(PYTHON)' is not. Name another: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "'$(PYTHON)' has no venv module. Debian, Ubuntu: apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[cpu,credit-risk]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[cpu,credit-risk,dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/python examples/demo/demo.py

test: $(VENV)/.dev
	$(PYTEST)

check: lint types contracts

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/startup.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/credit_risk_baseline.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/step_overhead.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/recovery.py $(BENCH_FLAGS)

clean:
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything sets itself up in .venv: `make run` and `make test` need only Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help install run up test lint bench paper clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

install: $(STAMP)  ## the environment, with the exact versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "erd needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -d .venv || $(PYTHON) -m venv .venv
	@echo "installing into .venv (some minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(STAMP)  ## the whole chain on the bundled digits
	@$(BIN)/erd run

up: $(STAMP)  ## Prefect with worker and schedule, and MLflow, until Ctrl-C; PREFECT_PORT=4200 MLFLOW_PORT=5000
	@$(BIN)/python -m flows.up $(PREFECT_PORT:%=--prefect-port %) $(MLFLOW_PORT:%=--mlflow-port %)

test: lint  ## lint, types and all tests
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

lint: $(STAMP)  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(STAMP)  ## what got slower since benchmarks/baseline.json? DATA=DIR for Fashion-MNIST; docs/speed.md
	@$(BIN)/python benchmarks/speed.py --quick --check $(DATA:%=--data %)

paper: $(STAMP)  ## the paper's tables and figures, a day on two cores; resumes; DATA=DIR, ONLY=piece
	@$(BIN)/python benchmarks/paper.py $(DATA:%=--data %) $(ONLY:%=--only %)

clean:  ## remove the environment and caches; runs and data stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

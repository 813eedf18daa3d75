# Everything sets itself up in .venv: `make run` and `make test` need only Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help install run up test fast faults fuzz lint bench paper clean

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

run: $(STAMP)  ## the demo: the whole chain on the bundled digits
	@$(BIN)/erd run --scenario digits-near

up: $(STAMP)  ## Prefect with worker and schedule, and MLflow, until Ctrl-C; PREFECT_PORT=4200 MLFLOW_PORT=5000
	@$(BIN)/python -m flows.up $(PREFECT_PORT:%=--prefect-port %) $(MLFLOW_PORT:%=--mlflow-port %)

test: lint  ## lint, types and all tests
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

fast: $(STAMP)  ## what a change needs, in under 90 seconds: linters, and the tests that start no server and train little
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

fuzz: $(STAMP)  ## 500 damaged files and odd values, others each time; half an hour; N=50 for fewer
	@FUZZ=$(or $(N),500) $(BIN)/python -m pytest tests/fuzz --timeout 7200
faults: $(STAMP)  ## processes killed at twenty random moments, and all else that goes wrong; half an hour
	@$(BIN)/python -m pytest -m "" --durations=0 tests/faults

lint: $(STAMP)  ## ruff, the order of imports, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/mypy

dvc.yaml: $(STAMP) erd/weekly/chain.py $(wildcard erd/weekly/stages/*.py)  ## the pipeline, from the chain of stages
	@$(BIN)/python -m erd.integrations.dvc_pipeline > .dvc.yaml.part && mv .dvc.yaml.part $@

bench: $(STAMP)  ## is more work done than before, and what got slower? under 5 minutes; DATA=DIR for Fashion-MNIST
	@$(BIN)/python benchmarks/work.py --check; counted=$$?; \
		$(BIN)/python benchmarks/speed.py --quick --check $(DATA:%=--data %) && exit $$counted

paper: $(STAMP)  ## the paper's tables and figures, a day on two cores; resumes; DATA=DIR, ONLY=piece
	@$(BIN)/python benchmarks/paper.py $(DATA:%=--data %) $(ONLY:%=--only %)

clean:  ## remove the environment and caches; runs and data stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

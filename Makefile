# Everything sets itself up on first use: .venv, packages, jars.
.DEFAULT_GOAL := help
BIN := .venv/bin
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help setup setup-gpu demo test lint soak bench test-spark40 clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv, install the packages, fetch and build the jars (what is there already is left alone)
	@scripts/setup.sh

setup-gpu: ## The same, and the jars of GPU decoding, with their tests (RAPIDS is 576 MB)
	@scripts/setup.sh gpu

demo: setup ## Real digits through Kafka and Delta into a model, on this machine
	@$(BIN)/kbit demo

test: setup-gpu ## Tests with a real broker, Delta and local-cluster; at least 85 % of the lines
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report= $(PYTEST_ARGS)
	@$(BIN)/coverage report --fail-under 85 | tail -n 40

lint: setup ## ruff, mypy (strict), import-linter
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

soak: setup ## 50 kills of ingest while records keep coming, 20 of one training run; SOAK_ARGS='--kills 10 --seed 3'
	@$(BIN)/python -m tests.soak $(SOAK_ARGS)

bench: setup ## Measure against peers, side by side; tables go to bench/results/
	@$(BIN)/kbit bench ingest && $(BIN)/kbit bench train

test-spark40: ## The chain on Spark 4.0 and Delta 4.0, the line of Databricks 17.3
	@scripts/test-spark40.sh

clean: ## Remove what was built, installed and written
	rm -rf .venv .venv-spark40 .kbit jars/target jars/*/target

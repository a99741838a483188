# Every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
# Asked only when there is no .venv yet.
PYTHON ?= $(shell scripts/choose-python.sh)
VENV := .venv
BIN := $(VENV)/bin
# Inputs for each of the seven fuzz targets: 14 million in all.
RUNS ?= 2000000
# One more than cores: half of what a test with real processes takes is waiting for them.
WORKERS ?= $(shell expr $$(nproc) + 1)
NATIVE := $(shell find ringlog/native -name '*.cpp' -o -name '*.hpp' -o -name 'CMakeLists.txt')

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-spark test check bench peers fuzz soak format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.installed ## build ringlog and install it into .venv, with `ringlog` on its path

demo: setup ## a node, a million records, a kill in the middle, every record checked
	$(BIN)/ringlog demo

demo-spark: $(VENV)/.examples ## page views through a node and a streaming job of Spark: counts checked, throughput and lag plotted
	$(BIN)/python -m examples.page_views.demo

test: $(VENV)/.spark ## all tests, with short seeded runs of the slow lanes
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 20 --ignore tests/spark
	$(BIN)/python -m pytest --durations 5 tests/spark  # by themselves: one session of Spark serves them all, and takes every core

check: $(VENV)/.dev ## formatting, lint, types, import contracts, C++ warnings: in seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_native.py

bench: $(VENV)/.spark ## every figure beside its limit, measured in one run
	$(BIN)/python -m perf micro
	$(BIN)/python -m perf node
	$(BIN)/python -m perf cluster
	$(BIN)/python -m perf spark

peers: $(VENV)/.test ## fetch what `python -m perf compare` measures beside ringlog: Kafka, NATS, Redis, RabbitMQ
	@scripts/install-extras.sh $(BIN)/python peers plots
	$(BIN)/python -m perf.peers

fuzz: $(VENV)/.test ## the fuzz targets of every native parser; RUNS=… inputs each
	$(BIN)/python tests/fuzz/run.py --runs $(RUNS)

soak: $(VENV)/.test ## the fault tests in their full amounts
	RINGLOG_SOAK=1 $(BIN)/python -m pytest tests/fault tests/litmus tests/sim --timeout 3600

format: $(VENV)/.dev ## format Python
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## forget everything that was built
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@python=$(PYTHON) && scripts/require-system.sh $$python && $$python -m venv $(VENV)

$(VENV)/.installed: pyproject.toml scripts/install.sh scripts/requirements.py $(NATIVE) | $(BIN)/python
	@echo "building ringlog; on a fresh machine this takes one to two minutes …"
	@scripts/install.sh $(BIN)/python
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@scripts/install-extras.sh $(BIN)/python test
	@touch $@

# Spark is half a gigabyte and needs Java: only what runs it waits for it.
$(VENV)/.spark: $(VENV)/.test
	@scripts/require-java.sh
	@scripts/install-extras.sh $(BIN)/python examples
	@touch $@

$(VENV)/.examples: $(VENV)/.installed
	@scripts/require-java.sh
	@scripts/install-extras.sh $(BIN)/python examples
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@scripts/install-extras.sh $(BIN)/python dev
	@touch $@

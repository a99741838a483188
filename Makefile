# Every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find ringlog/native -name '*.cpp' -o -name '*.hpp' -o -name 'CMakeLists.txt')

.DEFAULT_GOAL := help
.PHONY: help setup test-setup dev-setup demo test check bench fuzz soak clean system

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.installed ## build and install ringlog into .venv
test-setup: $(VENV)/.test
dev-setup: $(VENV)/.dev

$(BIN)/python:
	@scripts/require-system.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)

# The liburing package compiles for more than a minute, so it builds beside everything else.
$(VENV)/.installed: pyproject.toml $(NATIVE) | $(BIN)/python
	@scripts/install.sh $(BIN)/python
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.installed
	$(BIN)/pip install -q --no-build-isolation -e '.[test]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.test
	$(BIN)/pip install -q --no-build-isolation -e '.[dev]'
	@touch $@

clean: ## forget everything that was built
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

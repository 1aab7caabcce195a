# Every command of the project.  `make` alone is what CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: ci setup up test check fix faults bench lock clean help

ci: check test faults            ## what CI runs

help:                            ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(VENV)/.installed: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Slotgate needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src  # a command starts in half the time
	@touch $@

setup: $(VENV)/.installed        ## .venv with everything in it, and .venv/bin/slotgate

up: setup                        ## start a real model and the gateway on 127.0.0.1:8080
	@exec $(BIN)/slotgate up $(ARGS)

test: setup                      ## every test, real llama.cpp included
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: setup                     ## format, lint, types, architecture, spelling, docs in step
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests docs bench README.md
	$(BIN)/python docs/generate.py --check

fix: setup                       ## rewrite what can be rewritten
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python docs/generate.py

faults: setup                    ## the core's tests must catch each planted fault
	$(BIN)/python -m tests.core.faults

bench: setup                     ## the benchmarks of bench/, each prints one table
	$(BIN)/python -m bench

lock: setup                      ## pin the newest versions that are a week old
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url \
	  --python-version 3.11 --exclude-newer "$$(date -u -d '7 days ago' +%F)" \
	  --custom-compile-command "make lock" pyproject.toml requirements/dev.in -o requirements/dev.lock

clean:                           ## remove what was built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

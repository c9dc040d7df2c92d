# Needs nothing but make and Python 3.11 or later: every target sets up what it uses, in .venv.

SHELL := /bin/sh
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check install --no-input
PYTEST := $(BIN)/python -m pytest -q
# The suites of `make test`, in the order in which they run; those of one word run together, and each word prints its time.
SUITES ?= tidy+unit+lifecycles+model+validate_log+process+git+ci spec+cli postgres+store+core+engine+corpus+plugins client+worker+testing+adapters \
	simulation+property+regressions+mutants server dashboard docs+chaos

SECONDS ?= 60
SEED ?= 100000

.DEFAULT_GOAL := help
.PHONY: help run test quick check adapters proof soak bench docs pictures lint types layers drift requirements clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

run: .venv/.run ## Start Interlock on a SQLite file: the API, a worker and a few tasks to try
	@exec $(BIN)/interlock up

test: .venv/.dev ## Run every test, with a real PostgreSQL of its own
	@failed=; for suite in $(SUITES); do \
		start=$$(date +%s); folders=$$(echo "tests/$$suite" | sed 's|+| tests/|g'); \
		$(PYTEST) -n 2 --dist worksteal -m "not proof" $$folders || failed="$$failed $$suite"; \
		echo "--- $$suite: $$(( $$(date +%s) - start )) s"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

quick: .venv/.dev ## Check in under a minute: before every commit
	@$(MAKE) --no-print-directory lint types layers drift
	@$(PYTEST) -n 2 --dist worksteal -m "not proof" tests/tidy tests/unit tests/lifecycles tests/testing
	@$(PYTEST) -n 2 --dist worksteal -m "not proof" -k "not http and not postgres" tests/client

check: .venv/.dev ## Everything that must hold: lint, types, layering, docs drift and all tests
	@for part in lint types layers drift; do \
		start=$$(date +%s); $(MAKE) --no-print-directory $$part || exit 1; echo "--- $$part: $$(( $$(date +%s) - start )) s"; \
	done
	@$(MAKE) --no-print-directory test

adapters: .venv-adapters/.done ## Test the adapters to libraries of agents, with these libraries, in .venv-adapters
	@.venv-adapters/bin/python -m pytest -q -n 2 --dist worksteal tests/adapters

proof: .venv/.dev ## The long forms of the tests; writes docs/proof.md
	@$(BIN)/python scripts/prove.py

soak: .venv/.dev ## Play random lives of the whole system on all cores (SECONDS=60); from 600 on every move must be taken
	@SECONDS=$(SECONDS) SEED=$(SEED) $(BIN)/python scripts/soak.py

bench: .venv/.dev ## Measure speed beside the peers and above the floor (QUICK=1: the nearest peer, five minutes)
	@$(BIN)/python -m bench.compare
	@$(BIN)/python bench/validate_log.py
	@$(BIN)/python bench/children.py
	@$(BIN)/python bench/workflows.py
	@$(BIN)/python -m bench.history
	@$(BIN)/python bench/over_http.py
	@$(BIN)/python bench/feed.py
	@$(BIN)/python -m bench.worker
	@$(BIN)/python -m bench.shapes

docs: .venv/.run ## Render docs/lifecycles from the lifecycles
	@$(BIN)/interlock lifecycle docs

pictures: .venv/.dev ## Make the pictures of the pages that the docs show
	@$(BIN)/python scripts/pictures.py

lint: .venv/.dev
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .

types: .venv/.dev
	@$(BIN)/mypy

layers: .venv/.dev
	@$(BIN)/lint-imports --no-logo >.venv/layers.log || { cat .venv/layers.log; exit 1; }

drift: .venv/.dev
	@$(BIN)/interlock lifecycle docs --check

# Compiled without index addresses, so that no registry is named.
requirements: .venv/.dev ## Pin the requirements anew (needs uv)
	@for f in run server dev agents-pydantic agents-openai agents-anthropic; do uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate $$(case $$f in agents-*) echo -c requirements/dev.txt;; esac) \
		-o requirements/$$f.txt requirements/$$f.in; done

clean: ## Remove what the targets made
	@rm -rf .venv .venv-bench .venv-adapters .bench .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Interlock needs Python 3.11 or later; none was found. Name one: make PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -m venv .venv

.venv/.run: requirements/server.txt pyproject.toml | .venv/bin/python
	@echo "Setting up .venv …"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv  # an interrupted set-up
	@$(PIP) --require-hashes -r requirements/server.txt
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

.venv/.dev: requirements/dev.txt .venv/.run
	@echo "Setting up what the checks need …"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

# What adapters adapt weighs 200 MB, so it is kept out of .venv.
.venv-adapters/.done: requirements/agents-pydantic.txt requirements/agents-openai.txt requirements/agents-anthropic.txt requirements/dev.txt pyproject.toml | .venv/bin/python
	@echo "Setting up .venv-adapters …"
	@$(BIN)/python -m venv .venv-adapters
	@.venv-adapters/bin/python -m pip -qq --disable-pip-version-check install --no-input --require-hashes \
		-r requirements/dev.txt -r requirements/agents-pydantic.txt \
		-r requirements/agents-openai.txt -r requirements/agents-anthropic.txt
	@.venv-adapters/bin/python -m pip -qq --disable-pip-version-check install --no-input --no-build-isolation --no-deps --editable .
	@touch $@

# Every target makes what it needs first; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := kfext tests e2e
# Where it is set, every process of kfext that a test starts would compile all of kfext anew.
unexport PYTHONDONTWRITEBYTECODE
# Four processes, each with a cluster of its own, unless KFEXT_TESTBED names one: an end-to-end case
# mostly waits. Those on real nodes take longest, so they come first, as in the order of the files.
BESIDE := $(if $(KFEXT_TESTBED),,--numprocesses 4 --no-loadscope-reorder)

# -- set-up ------------------------------------------------------------------

$(READY): pyproject.toml
	@echo "== virtual environment $(VENV): kfext, its dependencies and the development tools (about 1 minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kfext needs Python 3.11 or newer; $(PYTHON) is older: make PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "no virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable '.[sdk,agent]' --group dev
	@touch $@

.PHONY: help venv
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

venv: $(READY) ## the virtual environment with all tools

LOCK := $(BIN)/uv pip compile --quiet --python-version 3.11 --python-platform linux --generate-hashes $(if $(UPGRADE),--upgrade) --custom-compile-command 'make lock'

.PHONY: lock
lock: $(READY) ## the packages of the image with their hashes, for the Dockerfile (UPGRADE=1: newest)
	@$(LOCK) pyproject.toml --extra agent --output-file requirements.lock
	@$(LOCK) --group build --output-file requirements-build.lock

# -- the two commands of the README ---------------------------------------------

.PHONY: demo test
demo: $(READY) ## real training with and without kfext on a real cluster (KEEP=1 leaves it up)
	@$(BIN)/python -m e2e.demo $(if $(KEEP),--keep)

test: lint unit e2e ## all checks and tests but the long ones

# -- parts of it -------------------------------------------------------------

SITE := $(BIN)/python -m sphinx -c docs -d build/doctrees -W --keep-going -n -q . build/site

.PHONY: site
site: $(READY) ## the pages as a site: build/site/index.html
	@$(SITE)

.PHONY: demo-gpu generate fmt lint quick unit e2e test-long bench up down
demo-gpu: $(READY) ## two real jobs on one card that the CPU simulates, without a gate and with it
	@$(BIN)/python -m e2e.demo_gpu

generate: $(READY) ## all generated schemas and tables, and the board for Grafana
	@$(BIN)/python -m tests.contract.generated

fmt: $(READY) ## format the code
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

lint: $(READY) ## style, types, import contracts, links of the pages
	@echo "== lint"
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "not formatted: make fmt"; exit 1; }
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache
	@$(SITE)

quick: $(READY) ## unit and contract tests but the longest: some minutes
	@$(BIN)/pytest --quiet tests/unit tests/contract -m "not histories and not long"

unit: $(READY) ## unit, adapter, contract and browser tests
	@echo "== unit, adapter, contract and browser tests"
	@$(BIN)/python -m e2e.testbed browser
	@$(BIN)/pytest --quiet tests -m "not long" --numprocesses 2 --dist worksteal

e2e: $(READY) ## end-to-end tests on a real cluster
	@echo "== end-to-end tests"
	@$(if $(KFEXT_TESTBED),,$(BIN)/python -m e2e.testbed build)
	@$(BIN)/pytest e2e/cases -m "not long" $(BESIDE)

test-long: $(READY) ## everything, with all cases of real training
	@$(BIN)/pytest tests
	@$(if $(KFEXT_TESTBED),,$(BIN)/python -m e2e.testbed build --long)
	@$(BIN)/pytest e2e/cases $(BESIDE)

.PHONY: soak
soak: $(READY) ## random work, node failures and kills, and the books: MINUTES=30 NODES=200 SEED=1 AUTOSCALER=1
	@$(BIN)/python -m e2e.soak --minutes $(or $(MINUTES),30) --nodes $(or $(NODES),200) --seed $(or $(SEED),1) $(if $(AUTOSCALER),--autoscaler)

bench: $(READY) ## all benchmarks; docs/reports names the options of some
	@$(BIN)/python -m e2e.bench all

up: $(READY) ## a cluster to try kfext on: two real nodes, kfext installed
	@$(BIN)/python -m e2e.playground up

down: $(READY) ## end that cluster and everything it left
	@$(BIN)/python -m e2e.playground down

.PHONY: release
release: $(READY) ## check, build all files in dist/, and tag: VERSION=0.4.0 IMAGE=REGISTRY/kfext
	@$(BIN)/python -m e2e.release check $(VERSION)
	@$(MAKE) --no-print-directory lint quick
	@$(BIN)/python -m e2e.release publish $(VERSION) $(if $(IMAGE),--image=$(IMAGE))

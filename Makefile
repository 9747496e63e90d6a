# Every target sets up .venv by itself; nothing outside this folder is touched.

.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE := .cache/docs/.ready
ARGS ?=

# A test that fails is run once more, on a machine that may be busy with something else. One that passes only then is
# named at the end, with its traceback: look into it. Where nothing depends on the machine, once is enough.
ONCE := tests/architecture tests/docs tests/pure tests/simulation tests/typing
AGAIN ?= --reruns 1 --rerun-show-tracebacks -rR $(ONCE:%=--rerun-exclude-path=%)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The programs that are started by tests and demo need not compile everything anew, whatever the environment says.
demo test quick: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo
demo: $(READY) ## show a pipeline surviving the death of its workers
	$(BIN)/penstock demo $(ARGS)

.PHONY: test
test: $(READY) ## run the whole suite on SQLite, PostgreSQL and MariaDB
	$(BIN)/python -m pytest -n 6 --dist worksteal $(AGAIN) $(ARGS)

.PHONY: quick
quick: $(READY) ## run the tests that need no server and no processes
	$(BIN)/python -m pytest --database sqlite -m "not process and not slow" $(ARGS)

.PHONY: tests-of
tests-of: $(READY) ## run the tests that name or import a module (MODULE=penstock/queue/settle.py)
	$(BIN)/python scripts/tests_of.py "$(MODULE)" $(ARGS)

.PHONY: lint
lint: $(READY) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: format
format: $(READY) ## fix style and formatting in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: types
types: $(READY) ## check types, strictly
	$(BIN)/mypy

.PHONY: check
check: lint types test ## what every change has to pass

.PHONY: simulate
simulate: $(READY) ## search seeded schedules for a broken promise
	$(BIN)/python -m tests.simulation $(ARGS)

.PHONY: chaos
chaos: $(READY) ## break everything under load (DATABASE=, MINUTES=, SEED=, NETWORK=proxy, SCENARIO=failover, patroni, galera)
	DATABASE="$(DATABASE)" MINUTES="$(MINUTES)" SEED="$(SEED)" NETWORK="$(NETWORK)" $(BIN)/python -m tests.chaos $(SCENARIO) $(ARGS)

.PHONY: bench
bench: $(READY) ## measure throughput and latency (SERVER=15,18 PEERS= WORKLOADS= ROUNDS= SCALE=)
	$(BIN)/python -m bench $(ARGS)

.PHONY: docs
docs: $(READY) $(SITE) ## build the documentation as a site into build/site
	$(BIN)/python -m scripts.docs $(ARGS)

.PHONY: dist
dist: $(READY) ## build wheel and sdist into dist/, check both, run hello world with each
	$(BIN)/python scripts/dist.py $(ARGS)

.PHONY: pictures
pictures: $(READY) ## take pictures of the dashboard for docs/pictures
	$(BIN)/python scripts/pictures.py $(ARGS)

.PHONY: pins
pins: $(READY) ## refresh requirements-dev.txt to the newest versions
	$(BIN)/python scripts/pin.py

.PHONY: clean
clean: ## remove everything that was built, downloaded or cached here
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

$(SITE): requirements-docs.txt $(READY)
	$(BIN)/python -m venv --clear .cache/docs
	.cache/docs/bin/python -m pip --disable-pip-version-check --quiet install -r requirements-docs.txt
	@touch $@

$(READY): pyproject.toml requirements-dev.txt scripts/setup
	@scripts/setup $(VENV)
	@touch $@

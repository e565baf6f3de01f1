# Fencepost: every verb of the project. `make help` lists them. Needs only make and a python3 of version 3.11 to 3.14.
PYTHON ?= python3
VENV ?= .venv
KILLS ?= 200
WINDOWS ?= 15
# More than processors: most tests wait for processes that they started.
WORKERS ?= 4
BENCH ?=
# What `make explore` looks at; empty: everything.
EXPLORE ?=
BIN := $(VENV)/bin
# Files and folders of tests that take longest by themselves; `make test` leaves them to `make long`.
LONG := tests/blackbox/care \
	tests/blackbox/guard \
	tests/blackbox/cli \
	tests/blackbox/examples \
	tests/blackbox/providers \
	tests/blackbox/tunnel \
	tests/blackbox/up \
	tests/contract/mailbox/test_machine.py \
	tests/contract/mailbox/shared/test_file_machine.py \
	tests/contract/mailbox/shared/test_file_race.py \
	tests/contract/mailbox/tasks/test_task_machine.py \
	tests/contract/mailbox/tasks/test_task_race.py \
	tests/e2e/mcp/test_families.py \
	tests/e2e/mcp/test_named_agents.py \
	tests/e2e/mcp/test_restarts.py \
	tests/e2e/mcp/test_upgrades.py \
	tests/unit/providers/integrate \
	tests/unit/providers/processes \
	tests/unit/tunnel/test_keeper.py

# What the files of the repository must be, which `make check` looks at.
REPO := tests/unit/repo

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
# Every test starts processes: without kept bytecode each would compile its libraries anew.
unexport PYTHONDONTWRITEBYTECODE

INPUTS := pyproject.toml scripts/bootstrap.py requirements/build.txt

$(VENV)/.runtime-ready: $(INPUTS) requirements/runtime.txt
	@$(PYTHON) scripts/bootstrap.py runtime --venv $(VENV)

$(VENV)/.dev-ready: $(INPUTS) requirements/dev.txt
	@$(PYTHON) scripts/bootstrap.py dev --venv $(VENV)
	@touch $(VENV)/.runtime-ready

.PHONY: help
help: ## Say what each verb does.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.runtime-ready ## Two agents exchange information, a request and its reply; then a service is killed. Under a minute.
	@$(BIN)/python scripts/demo.py

.PHONY: up
up: $(VENV)/.runtime-ready ## Start the services in the foreground for your own home (FENCEPOST_HOME, default ~/.fencepost).
	@$(BIN)/fencepost up

.PHONY: test
test: $(VENV)/.dev-ready ## Run the tests, all set-up included; `make long` has the longest, `make check` those of the repository.
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(addprefix --ignore=,$(LONG) $(REPO))

.PHONY: long
long: $(VENV)/.dev-ready ## Run the tests that take longest: guards in real repositories, races, long machines, kills.
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(LONG)

.PHONY: again
again: $(VENV)/.dev-ready ## Run what failed last once more, alone, three tests at most: is it broken or unsteady?
	@$(BIN)/python scripts/again.py

.PHONY: explore
explore: $(VENV)/.dev-ready ## Look for histories that nobody has seen: the property tests and machines, drawn anew.
	@FENCEPOST_TESTS_EXPLORE=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m hypothesis $(EXPLORE)

.PHONY: check
check: $(VENV)/.dev-ready ## Formatting, lint, types, import directions, protos, stubs, pins, ledger.
	@$(BIN)/python scripts/check.py

.PHONY: chaos
chaos: $(VENV)/.dev-ready ## Kill services KILLS times under load and judge the history (default 200).
	@$(BIN)/python tests/chaos/run.py --kills $(KILLS)

.PHONY: e2e
e2e: $(VENV)/.dev-ready ## A project of several agents, others' programs, and the wheel accepted with the real Codex. Needs npm, a registry, 2 GB.
	@$(BIN)/python -m pytest -q -s tests/e2e_external

.PHONY: clients
clients: $(VENV)/.dev-ready ## The example clients in Node and Go against running services; one whose tools are missing is left out, and told.
	@FENCEPOST_TESTS_CLIENTS_OPTIONAL=1 $(BIN)/python -m pytest -q -rs tests/e2e_external/test_other_languages.py

.PHONY: e2e-real
e2e-real: $(VENV)/.dev-ready ## The acceptance with your own Codex and account. Opt-in: says what it takes and will do.
	@$(BIN)/python scripts/acceptance.py --real

.PHONY: bench
bench: $(VENV)/.dev-ready ## Measure every ratio over WINDOWS windows, print the table, write build/bench.json (default 15).
	@$(BIN)/python tests/bench/run.py --windows $(WINDOWS) $(BENCH)

.PHONY: proto
proto: $(VENV)/.dev-ready ## Generate what is generated: stubs from protos/, SQL from the statements, the shim's constant answers.
	@$(BIN)/python scripts/generate_stubs.py
	@$(BIN)/python scripts/generate_sql.py
	@$(BIN)/python -m fencepost.mcp.generate

.PHONY: pins
pins: $(VENV)/.dev-ready ## Make requirements/*.txt from pyproject.toml; versions that still fit stay.
	@$(BIN)/python scripts/pins.py

.PHONY: format
format: $(VENV)/.dev-ready ## Format Python and protos in place.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/buf format --write protos

.PHONY: docs
docs: $(VENV)/.dev-ready ## Check the documentation: links, glossary, ledger, dependencies.
	@$(BIN)/python -m pytest -q $(REPO)

.PHONY: clean
clean: ## Remove what was built here; your home is never touched.
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

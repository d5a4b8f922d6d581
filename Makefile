# `make` lists what there is to do. Everything works in `.venv`; PYTHON names the interpreter that makes it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := sh tests/tools/install.sh $(VENV) "$(PYTHON)"
# Stamp files: a target that is up to date costs nothing.
SERVER := $(VENV)/.server-installed
DEV := $(VENV)/.dev-installed
CACHE := $(VENV)/.cache-filled
# The judge of the compatible wire API, in an environment with nothing of ours.
JUDGE := .venv-published/.installed
# What sandboxes are compared with, likewise.
OTHER := .venv-llm-sandbox/.installed
TEST_FLAGS := $(if $(PYTEST_FLAGS),-- $(PYTEST_FLAGS))
PROJECTS := pyproject.toml clients/python/pyproject.toml
COMPILE := $(BIN)/uv pip compile --quiet --no-config --generate-hashes --universal --python-version 3.11 \
	--custom-compile-command "make lock" $(LOCK_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo demo-grant serve test test-walls test-long test-all test-changed proven durations check bench soak images lock openapi guest clean
.DELETE_ON_ERROR:

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(CACHE) ## make .venv with the service and the library, from hash-pinned locks

setup-dev: $(DEV) $(CACHE) ## the same with the tools for tests and checks

demo: $(CACHE) ## run the smallest example: a service of its own, one program, the wall it had
	@$(BIN)/python examples/minimal.py

demo-grant: $(CACHE) ## run the example of grants: programs that call an API, and a search for the credential
	@$(BIN)/python examples/grant.py

serve: $(CACHE) ## start the service on this machine (SANDBOX_PROVIDER names its walls; wasm when unset)
	@exec env SANDBOX_PROVIDER=$${SANDBOX_PROVIDER:-wasm} $(BIN)/plimsolld

test: $(DEV) $(CACHE) ## run the tests that need no docker, no database server and no network (PYTEST_FLAGS="PATH -x")
	$(BIN)/python tests/run.py fast $(TEST_FLAGS)

test-walls: $(DEV) $(CACHE) $(JUDGE) ## those that need a docker daemon, Postgres, a browser or a published client (root)
	$(BIN)/python tests/run.py walls $(TEST_FLAGS)

test-long: $(DEV) $(CACHE) ## soak, floods and repetitions at full size, and the wasm guest built anew (npm)
	SOAK_SECONDS=$${SOAK_SECONDS:-120} SOAK_RUNS=$${SOAK_RUNS:-500} $(BIN)/python tests/run.py long $(TEST_FLAGS)

test-all: $(DEV) $(CACHE) $(JUDGE) ## all of these; what is unavailable is skipped with its reason (PLIMSOLL_REQUIRE=a,b fails instead)
	SOAK_SECONDS=$${SOAK_SECONDS:-120} SOAK_RUNS=$${SOAK_RUNS:-500} $(BIN)/python tests/run.py fast walls long $(TEST_FLAGS)

test-changed: $(DEV) $(CACHE) ## the long tests of what the last forty commits changed, at small size
	$(BIN)/python tests/run.py changed $(TEST_FLAGS)

proven: $(DEV) ## count the distinct things that tests prove
	@$(BIN)/python tests/tools/proven.py

durations: $(DEV) ## note how long each test file took in the last runs, here and in CONTRIBUTING.md
	$(BIN)/python tests/run.py durations

check: $(DEV) ## lint, format, types, import rules, openapi.json, locks, links, known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/tools/openapi.py --check
	$(BIN)/python -m pytest -q tests/architecture
	@$(BIN)/python tests/tools/advisories.py

bench: $(DEV) $(CACHE) ## measure against native QuickJS, docker run and others (BENCH_FLAGS="--only 3,4"; BASE=COMMIT measures that one in turn)
	-@$(MAKE) -s $(OTHER)
	$(BIN)/python tests/bench $(if $(BASE),--base $(BASE)) $(BENCH_FLAGS)

images: ## build the sandbox image, with a registry or without, and list what is in it (IMAGES_FLAGS=--help explains)
	@deploy/images/build.sh $(IMAGES_FLAGS)

soak: $(DEV) ## runs under faults (SOAK_SECONDS=300 on each database; SOAK_SEED=N to choose alike), and in containers (SOAK_RUNS=2000)
	SOAK_SECONDS=$${SOAK_SECONDS:-300} SOAK_RUNS=$${SOAK_RUNS:-2000} $(BIN)/python -m pytest -q -s tests/soak

lock: $(DEV) ## rewrite requirements/*.lock (LOCK_FLAGS=--upgrade takes newer versions)
	$(COMPILE) $(PROJECTS) requirements/server.in -o requirements/server.lock
	$(COMPILE) clients/python/pyproject.toml requirements/client.in -c requirements/server.lock -o requirements/client.lock
	$(COMPILE) $(PROJECTS) requirements/server.in requirements/dev.in -c requirements/server.lock -o requirements/dev.lock
	$(COMPILE) --no-annotate --no-header requirements/guest.in -o requirements/guest.lock
	$(COMPILE) requirements/published-client.in -o requirements/published-client.lock
	$(COMPILE) requirements/llm-sandbox.in -o requirements/llm-sandbox.lock

openapi: $(DEV) ## rewrite openapi.json from the routes
	$(BIN)/python tests/tools/openapi.py

guest: $(DEV) ## rebuild the wasm guest from hash-pinned inputs and compare its bytes (needs npm)
	$(BIN)/python providers/wasm/guest/build.py --check

clean: ## remove .venv and everything that tools left behind
	rm -rf $(VENV) $(dir $(JUDGE)) $(dir $(OTHER)) build dist clients/python/build clients/python/dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find app providers broker migrations clients tests examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(SERVER): requirements/server.lock $(PROJECTS) tests/tools/install.sh
	@$(INSTALL) requirements/server.lock
	@touch $@

$(DEV): $(SERVER) requirements/dev.lock
	@$(INSTALL) requirements/dev.lock
	@touch $@

$(JUDGE): requirements/published-client.lock
$(OTHER): requirements/llm-sandbox.lock
$(JUDGE) $(OTHER): $(DEV)
	@echo Installing $(filter %.lock,$^) into $(@D)
	@rm -rf $(@D)
	@$(BIN)/python -m venv --without-pip $(@D)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip --python $(@D)/bin/python install --quiet \
		--require-hashes --no-deps --only-binary :all: -r $(filter %.lock,$^)
	@touch $@

# The guest is compiled once, here, so that the first run does not pay for it.
$(CACHE): $(SERVER) $(wildcard providers/wasm/*.wasm providers/wasm/guest/*.wasm)
	@$(BIN)/plimsoll-admin cache fill
	@touch $@

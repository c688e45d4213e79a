# Every target works from a fresh clone: what it needs is installed first where it is missing.
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
# An environment whose Python is gone, or whose folder has been copied or moved, is made anew.
$(shell $(BIN)/python -SEc 'import sys; sys.exit(open("$(RUNS)").read().strip() != "$(CURDIR)")' 2>/dev/null \
	|| rm -f $(RUNS) $(READY))

.PHONY: demo env peer fastmcp vllm pictures man test test-all test-changed test-clients test-fast test-stress lint bench gpu compare attack conformance sdks servers fuzz monkey load faults soak tiny-eval clean

env: $(READY)

NODE_SERVERS := tests/support/mcp_servers/node
CLIENTS := .venv-clients
NODE_CLIENTS := tests/clients/node

# $(call npm,FOLDER,WHAT): what is in the folder's package.json, where there is npm.
define npm
	@if command -v npm >/dev/null; then \
		echo "Installing $(2) …"; \
		npm install --prefix $(1) --no-package-lock --no-audit --no-fund --silent \
			|| echo "They could not be installed; their tests are skipped."; \
	else echo "No npm here; the tests of $(2) are skipped."; fi
endef

# What the program needs; then what tests need besides.
$(RUNS): pyproject.toml
	@echo "This needs 120 MB of downloads (or what pip's cache lacks of them) and 0.4 GB of disk."
	@./install.sh --venv $(VENV)
	@echo "$(CURDIR)" > $@

$(READY): $(RUNS) $(NODE_SERVERS)/package.json
	@./install.sh --venv $(VENV) '.[dev]'
	$(call npm,$(NODE_SERVERS),npm's MCP servers)
	@touch $@

$(CLIENTS)/.ready: tests/clients/requirements.txt $(NODE_CLIENTS)/package.json | $(READY)
	@$(CLIENTS)/bin/pip --version >/dev/null 2>&1 || $(BIN)/python -m venv --clear $(CLIENTS)
	@echo "Installing the clients that talk to /v1/responses in the tests …"
	$(CLIENTS)/bin/pip install --quiet --requirement tests/clients/requirements.txt
	$(call npm,$(NODE_CLIENTS),npm's clients)
	@touch $@

# llama-server, from the source of the installed bindings: for make bench, and for tests that speak to one.
peer: $(READY)
	$(BIN)/python -m tests.bench.build_llama

# FastMCP in an environment of its own, for the tests that run its servers.
fastmcp: $(READY)
	@.venv-fastmcp/bin/pip --version >/dev/null 2>&1 || $(BIN)/python -m venv --clear .venv-fastmcp
	.venv-fastmcp/bin/pip install --quiet 'fastmcp==4.1.2'

# vLLM for CPUs in an environment of its own, and the embedded model as its checkpoint: for the same.
vllm: $(READY)
	$(BIN)/python -m tests.bench.build_vllm

demo: $(RUNS)
	$(BIN)/agent run "Multiply 123*456 using the mcp.code_interpreter tool."

# Six processes also on two cores, a file in one of them: they often wait for the programs that they start.
PARALLEL := --numprocesses 6 --dist loadfile --no-loadscope-reorder
PYTEST := -m pytest
test: $(READY)
	$(BIN)/python $(PYTEST) $(PARALLEL) -m "not long"

# With the tests that take longest: more kills, attacks and clients, and whole lists on the embedded model.
test-all: $(READY)
	$(BIN)/python $(PYTEST) $(PARALLEL)

# Other people's clients against `agent serve`, and the blocks of README.md and docs/clients.md that show them.
test-clients: $(CLIENTS)/.ready
	$(CLIENTS)/bin/python $(PYTEST) tests/clients

test-fast: $(READY)
	$(BIN)/pytest $(PARALLEL) -m "not slow"

# The tests whose code changed since their last run; the first run takes all of them, to learn what each uses.
test-changed: $(READY)
	$(BIN)/pytest --testmon

# The suite five times alone and three times next to eight busy processes, in several orders.
# As a normal user too: make test-stress STRESS="--user nobody"
test-stress: $(READY)
	$(BIN)/python -m tests.stress $(STRESS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@git log --format=%s @{upstream}.. 2>/dev/null \
		| awk 'length > 72 { print "A commit subject of more than 72 characters: " $$0; bad = 1 } END { exit bad }'

# All groups, or some: make bench GROUPS="decode streams". Builds llama-server the first time.
bench: $(READY)
	$(BIN)/python -m tests.bench $(GROUPS)

# Builds for the local GPU and measures there, in any Python: make gpu STAGES="memory tokens"; see docs/gpu.md.
gpu:
	@$${PYTHON:-python3} -m tests.gpu $(STAGES)

# The same requests to our /v1/responses, vLLM's and llama-server's; writes docs/compared.md.
compare: $(READY)
	$(BIN)/python -m tests.compare

# All groups of attacks, or some: make attack GROUPS="sandbox mcp_servers". Install bubblewrap to try it too.
attack: $(READY)
	$(BIN)/python -m tests.attack --write $(GROUPS)

# MCP's conformance suite for clients, or some: make conformance SCENARIOS="2026-07-28 auth/scope-step-up".
conformance: $(READY)
	npm install --prefix tests/conformance --no-package-lock --no-audit --no-fund --silent
	$(BIN)/python -m tests.conformance $(SCENARIOS)

# Servers on every SDK for MCP, installed from PyPI and npm: writes docs/mcp-versions.md.
sdks: $(READY)
	$(BIN)/python -m tests.sdks

# Published servers by npx and uvx, plainly and in the sandbox: writes docs/mcp-servers.md. 15 minutes, 6 GB.
servers: $(READY)
	$(BIN)/python -m tests.servers

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz

# The commands with random arguments, files and surroundings, and the app with random keys and faults,
# or: make monkey CALLS=300 SEED=7 ACTIONS=1000
CALLS ?= 3000
SEED ?= 1
ACTIONS ?= 5000
monkey: $(READY)
	$(BIN)/python -m tests.monkey --calls $(CALLS) --seed $(SEED)
	MONKEY_SEEDS=$(SEED) MONKEY_ACTIONS=$(ACTIONS) $(BIN)/pytest tests/tui/test_monkey.py

# 32 clients of all kinds, 2,000 requests; memory is measured.
load: $(READY)
	$(BIN)/python -m tests.load

# 500 times kill -9 while turns are written down.
faults: $(READY)
	$(BIN)/python -m tests.load.crash_test

# An hour of turns with tools, cancels and branches, or: make soak MINUTES=5
MINUTES ?= 60
soak: $(READY)
	$(BIN)/python -m tests.load.soak --minutes $(MINUTES)

# What strangers wrote and the generator's own cases, at temperature 0 and 1; LIST= names other lists of prompts.
LIST ?= $(wildcard agent/tiny/train/prompts/strangers_*.json)
tiny-eval: $(READY)
	$(BIN)/python -m agent.tiny.train.strangers $(LIST)
	$(BIN)/python -m agent.tiny.train.evaluate

# Those of README.md and docs/app.md, of the app as it is now.
pictures: $(READY)
	$(BIN)/python -m tests.tui.pictures

# The man page and the tables of docs/configuration.md, of the texts as they are now.
man: $(READY)
	$(BIN)/python -m tests.manual > docs/agent.1
	$(BIN)/python -m tests.settings_page

clean:
	rm -rf .testmondata* $(VENV) $(CLIENTS) $(NODE_SERVERS)/node_modules $(NODE_CLIENTS)/node_modules .pytest_cache .mypy_cache .ruff_cache dist build

# Every target works from a fresh clone: the environment is made first where it is missing.
PYTHON ?= $(firstword $(foreach v,3.11 3.12 3.13 3.14,$(shell command -v python$(v))) python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo env peer test test-fast lint bench fuzz load tiny-eval clean

env: $(READY)

NODE_SERVERS := tests/tools/servers/node

$(READY): pyproject.toml $(NODE_SERVERS)/package.json
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.x"; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing (llama.cpp is compiled once, about 4 minutes; later runs take it from pip's cache) …"
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	@if command -v npm >/dev/null; then \
		echo "Installing the MCP servers of npm that the tests talk to …"; \
		npm install --prefix $(NODE_SERVERS) --no-package-lock --no-audit --no-fund --silent \
			|| echo "They could not be installed; their tests are skipped."; \
	else echo "No npm here; the tests of its MCP servers are skipped."; fi
	@touch $(READY)

# llama-server, from the source of the installed bindings: for make bench, and for tests that speak to one.
peer: $(READY)
	$(BIN)/python -m tests.bench.build

demo: $(READY)
	$(BIN)/agent run "Multiply 123*456 using the mcp.code_interpreter tool."

# A process per core, a file in one of them: much of it waits for other processes.
test: $(READY)
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test-fast: $(READY)
	$(BIN)/pytest -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# All groups, or some: make bench GROUPS="decode streams". Builds llama-server the first time.
bench: $(READY)
	$(BIN)/python -m tests.bench $(GROUPS)

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz

# 32 clients of all kinds, 2,000 requests; memory is measured.
load: $(READY)
	$(BIN)/python -m tests.load

tiny-eval: $(READY)
	$(BIN)/python -m agent.tiny.evaluate

clean:
	rm -rf $(VENV) $(NODE_SERVERS)/node_modules .pytest_cache .mypy_cache .ruff_cache dist build

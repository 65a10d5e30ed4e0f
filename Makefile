# Everything a person or the CI does with this repository. Needs Python >= 3.11, pip, make and git.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.setup-done
TESTS  ?= tests
FUZZ_S ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup agents check format test crash crash-short fuzz mutation soak demo bench golden proto clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## virtual environment with both distributions (editable) and the tools

# pip learned --group in 25.1; the one that comes with Python 3.11 is older.
$(STAMP): pyproject.toml client/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed: make PYTHON=python3.11 setup" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ./client -e '.[otel]' --group dev
	@touch $@

agents: $(STAMP) ## other people's instrumented libraries, for the tests that run real agents (Node's where npm is there)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group agents
	if command -v npm >/dev/null; then npm install --prefix tests/node --no-audit --no-fund --no-package-lock --loglevel=error; fi

check: $(STAMP) ## lint, format, types, layers, documentation
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary -p agentrund -p agentrund_client
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/check.py
	@! grep -rnwE 'TODO|FIXME|XXX' --include='*.py' --include='*.md' $(wildcard collector client tests bench demo docs)

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format .

test: $(STAMP) ## all tests but the slow ones; TESTS=path narrows it
	$(BIN)/python -m pytest -q -n 2 -m 'not slow' $(TESTS)

crash: $(STAMP) ## every fault in full (about an hour): 200 collector kills, every call of a life, 200 agent kills
	PYTHONPATH=tests $(BIN)/python -m crash --full --jobs 2 $(ROWS)

crash-short: $(STAMP) ## the same faults, a few of each
	PYTHONPATH=tests $(BIN)/python -m crash --jobs 2 $(ROWS)

mutation: $(STAMP) ## one guard switched off at a time: the harness must notice
	PYTHONPATH=tests $(BIN)/python -m crash.mutation $(ROWS)

otlp: $(STAMP) ## recorded clients (in AGENTRUND_FIXTURES) through every door of a real collector; CAPTURES=name narrows it
	PYTHONPATH=tests $(BIN)/python -m otlp_live $(CAPTURES)

soak: $(STAMP) ## twenty senders and steady kills for MINUTES (30), memory and descriptors watched
	PYTHONPATH=tests $(BIN)/python -m crash.soak $(or $(MINUTES),30)

demo: $(STAMP) ## the main job, shown: five agents, one of them killed and resumed
	$(BIN)/python -m demo

bench: $(STAMP) ## measure the hot paths
	$(BIN)/python -m bench

fuzz: $(STAMP) ## input guided by coverage at every decoder and reader; FUZZ_S=60 seconds a target
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group fuzz
	FUZZ_S=$(FUZZ_S) PYTHONPATH=tests $(BIN)/python -m fuzz

golden: $(STAMP) ## write tests/golden/example_root again; read the difference before you commit it
	$(BIN)/python tests/golden/make_example.py tests/golden/example_root

# The last compiler whose output does not tie itself to one protobuf runtime.
proto: ## generate the control service's Python code from proto/
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/python -m pip install --quiet --disable-pip-version-check 'grpcio-tools==1.64.3'
	.venv-proto/bin/python -m grpc_tools.protoc -Iproto --python_out=collector --pyi_out=collector \
		--grpc_python_out=collector agentrund/v1/control.proto
	rm -rf .venv-proto

clean: ## remove everything that can be made again
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

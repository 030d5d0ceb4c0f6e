# Two commands do everything on a fresh machine: `make run` and `make test`.
# They need Python 3.11 or newer; the environment lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Only of a run of everything is it asked how much of the core was run.
MEASURE := $(if $(filter-out --no-skips,$(TESTS)),,--cov --cov-report= --covered=95)

.PHONY: run test verify lint bench docs clean

run: .venv/.ready
	@$(BIN)/toolpost --config examples/gateway/toolpost.toml serve

# Thousands of processes are started: what each would compile again is kept, whatever is set here.
test: .venv/.ready .venv/servers/.ready
	@.ci/system-packages
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 -m "not verify" $(MEASURE) $(TESTS)

# The long proofs: load, soak, kills, conformance suites.
verify: .venv/.ready .venv/servers/.ready
	@.ci/system-packages
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 -m verify $(TESTS)

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.ready
	$(PYTHON) -m benchmarks

docs: .venv/.ready
	$(BIN)/python docs/generate.py

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "toolpost needs Python 3.11 or newer; say which with: make PYTHON=python3.13"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venv/servers/.ready: tests/servers/install tests/servers/package-lock.json \
  tests/servers/requirements.txt | .venv/.ready
	@tests/servers/install $(BIN)/python .venv/servers || \
	  echo "the MCP servers could not be installed: their tests will be skipped" >&2

clean:
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .pytest_cache benchmarks/.venv \
	  .coverage dist

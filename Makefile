# Every target installs what it needs into .venv first.
VENV ?= .venv
BIN := $(VENV)/bin
SETUP := python3 tools/setup.py --venv $(VENV)

.PHONY: serve test test-full test-gpu check docs docs-site size clean

serve:  ## Set up and serve the small real model, with a chat page at http://localhost:8000/
	$(SETUP) --with demo
	$(BIN)/octavo serve $(ARGS)

test:  ## Set up and pass the checks and the tests (CPU, under 20 minutes on two cores)
	$(SETUP) --with demo --with test --with dev
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -q -m "not gpu and not slow" $(ARGS)

test-full:  ## The long runs too
	$(SETUP) --with demo --with test --with dev --with large --with examples --with oracles
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -q -m "not gpu" $(ARGS)

test-gpu:  ## Kernels and engine on a CUDA device
	$(SETUP) --with demo --with test
	$(BIN)/python -m pytest -q -m gpu tests/gpu $(ARGS)

check:  ## Lint, format, types, import contracts
	$(SETUP) --with demo --with test --with dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/architecture_map.py --check

docs:  ## Rewrite the generated parts of docs/
	$(SETUP)
	$(BIN)/python tools/architecture_map.py

docs-site:  ## Build docs/ as a site in build/docs; a broken link is an error
	$(SETUP) --with docs
	$(BIN)/python -m sphinx -W --keep-going -q docs build/docs

size:  ## Lines per package, the largest files
	$(SETUP)
	$(BIN)/python tools/size_report.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

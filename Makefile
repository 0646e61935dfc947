# Every target sets up what it needs in .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# tests start many processes; modules compiled once serve all of them
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test test-extended test-all coverage check mutants verify bench docs reference claims dist clean
.DEFAULT_GOAL := setup

setup: $(READY)

$(READY): pyproject.toml constraints.txt src/tacit/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tacit needs Python 3.11 or newer; run: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[all,dev,docs]'
	@touch $(READY) $(DEMO_READY)

# only what the demonstration needs: no development tools, no Ray
$(DEMO_READY): pyproject.toml constraints.txt src/tacit/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tacit needs Python 3.11 or newer; run: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[live,plot]'
	@touch $(DEMO_READY)

# KEEP=1 leaves it open, to watch and to take part
demo: $(DEMO_READY)
	$(BIN)/tacit demo --out demo-output $(if $(KEEP),--keep)

# five minutes on two cores; the last lines say what was left out
test: $(READY)
	$(BIN)/python -m pytest

# what a change must pass besides: processes killed, PostgreSQL, large rounds, pages of the docs
test-extended: $(READY)
	$(BIN)/python -m pytest -m 'extended and not slow'

test-all: $(READY)
	$(BIN)/python -m pytest -m ''

# how much of the code the tests reach, in twice the time; the floor is in pyproject.toml
coverage: $(READY)
	$(BIN)/python -m pytest -m 'not slow' --cov=tacit --cov-report=term

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# broken copies of the package, each of which a test must notice; goes on where it was interrupted
mutants: $(READY)
	$(BIN)/python -m tests.mutants
	$(BIN)/python -m tests.mutants.browser

# guarantees of a grid, recomputed from the distribution of the view by slow independent arithmetic
verify: $(READY)
	$(BIN)/python -m tests.verify

bench: $(READY)
	$(BIN)/python benchmarks/collect.py

docs: $(READY)
	$(BIN)/sphinx-build --quiet --fail-on-warning docs docs/_build

# wheel, source distribution, hashes and bill of materials into dist/
dist: $(READY)
	$(BIN)/python packaging/dist.py

# every number and picture of README and docs, recomputed; about an hour, in the background
claims: $(READY)
	nice -n 10 $(BIN)/python docs/claims.py

# pages of the documentation that are printed from the code
reference: $(READY)
	$(BIN)/python docs/reference/commands.py
	$(BIN)/python docs/reference/configuration.py > docs/reference/.new && mv docs/reference/.new docs/reference/configuration.md
	$(BIN)/python docs/reference/http_api.py > docs/reference/.new && mv docs/reference/.new docs/reference/http_api.md
	$(BIN)/python docs/explanation/walks.py > docs/explanation/.new && mv docs/explanation/.new docs/explanation/walks.md

clean:
	rm -rf $(VENV) docs/_build docs/gallery dist demo-output .coverage

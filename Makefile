# `make help` prints the lines with ##.

SHELL := /bin/sh
PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz chaos bench lint down clean

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

setup:  ## Make the Python environment, fetch the JVM jars
	@./.ci/setup

demo: setup  ## Run the whole platform on a month of real flights
	@./twofold demo

test: setup  ## Run every test, two at a time, since many wait
	@$(PYTHON) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

fuzz: setup  ## Hold tables against DuckDB for long: FUZZ_WORLDS random worlds, a year of flights
	@FUZZ_WORLDS=$${FUZZ_WORLDS:-30} YEAR_MONTHS=$${YEAR_MONTHS:-12} \
		$(PYTHON) -m pytest tests/batch/test_parity.py tests/kinds tests/batch/test_year.py

chaos: setup  ## Kill streams, reconciles, replays and rebuilds CHAOS_KILLS times each, 50 unless told
	@CHAOS_KILLS=$${CHAOS_KILLS:-50} $(PYTHON) -m pytest -s tests/chaos

bench: setup  ## Measure: drain, freshness, reconcile, kinds of table, archive, a replay beside a stream
	@$(PYTHON) -m benchmarks

lint: setup  ## Check format, style and types
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m mypy

down:  ## Stop the platform
	@./twofold down

clean:  ## Stop the platform, remove all that it and `make setup` made
	@test ! -x $(PYTHON) || ./twofold down
	@rm -rf .twofold .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

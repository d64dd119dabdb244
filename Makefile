# `make help` prints the lines with ##.

SHELL := /bin/sh
PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench lint lock down clean

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

setup:  ## Make the Python environment, fetch the JVM jars
	@./.ci/setup

demo: setup  ## Run the whole platform on a month of real flights
	@./twofold demo

test: setup  ## Run every test
	@$(PYTHON) -m pytest

bench: setup  ## Measure: drain, freshness, reconcile
	@$(PYTHON) -m benchmarks

lint: setup  ## Check format, style and types
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m mypy

lock: setup  ## Write requirements.txt from requirements.in, with hashes
	@$(PYTHON) -m uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 \
		--output-file requirements.txt requirements.in

down:  ## Stop the platform
	@./twofold down

clean:  ## Stop the platform, remove all that it and `make setup` made
	@test ! -x $(PYTHON) || ./twofold down
	@rm -rf .twofold .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

# `make` prints the targets with ##: at most ten. ARGS are options of pytest, or of a benchmark.

SHELL := /bin/sh
PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo check test prove fuzz chaos bench down clean

# A file at a time on each core, and on a third worker those that wait; what each took is in .twofold/durations.
PYTEST := $(PYTHON) -m pytest --dist loadfile --no-loadscope-reorder
# Without bytecode each worker, and each process that a test starts, would compile what it imports again.
export PYTHONDONTWRITEBYTECODE =

# Types are checked beside the tests.
define checked
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m mypy & \
		$(PYTEST) $(1) $(ARGS); tests=$$?; \
		wait $$! && exit $$tests
endef

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup:  ## Make the Python environment, fetch the JVM jars
	@./.ci/setup

DOMAIN := flights

demo:  ## Run the whole platform on a month of real flights; DOMAIN=shop: on a week of a shop
	@./.ci/setup runtime
	@./twofold demo $(DOMAIN)

check: setup  ## Check format, style, types, and all that needs no Spark or server: two minutes; ONLY=affected: by a change
	$(call checked,--numprocesses 2 --tier check $(if $(ONLY),--only $(ONLY)))

test: setup  ## Check the same, and every claim once, with Spark and real servers
	$(call checked,--numprocesses 3 --tier test)

prove: setup  ## Prove the claims again with killed processes and whole platforms: before an issue is resolved
	@$(PYTEST) --numprocesses 2 --tier prove $(ARGS)

fuzz: setup  ## Hold tables against DuckDB for hours: random worlds, a year of flights; ARGS="--worlds 30 --months 12"
	@$(PYTHON) -m pytest --tier fuzz $(ARGS)

chaos: setup  ## Kill streams, reconciles, replays, rebuilds, captures for hours; ARGS="--kills 50 --seed 7"
	@$(PYTHON) -m pytest -s --tier chaos $(ARGS)

bench: setup  ## Measure drain, freshness, reconcile, ...; ONLY=peers ARGS="--records 100000": the same by Flink SQL, too
	@$(PYTHON) -m $(patsubst benchmarks.peers,peers,benchmarks$(if $(ONLY),.$(ONLY))) $(ARGS)

down:  ## Stop the platform
	@./twofold down

clean:  ## Stop the platform, remove all that it and `make setup` made
	@test ! -x $(PYTHON) || ./twofold down
	@rm -rf .twofold .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

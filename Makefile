# Every target first sets up what it needs; `make` alone says what there is.
S ?= two-jobs
PYTHON := .venv/bin/python
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup scenario reproduce smoke test lint bench docs clean

help:  ## say what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup:  ## install what is missing and build the guest kernel, once
	@scripts/setup

scenario: setup  ## run a scenario: make scenario [S=two-jobs]
	@$(PYTHON) -m testbed run $(S)

reproduce: setup  ## both papers' experiments: make reproduce [R="--only snapshot-1 --fresh --full"]
	@$(PYTHON) -m testbed reproduce $(R)

smoke: setup  ## a dumbbell and two arms in a minute, for CI in containers
	@$(PYTHON) -m testbed run smoke

test:  ## all tests: make test [T="lint types unit guest e2e"]
	@scripts/setup --dev && scripts/test $(T)

lint:  ## style and types alone
	@scripts/setup --dev && scripts/test lint types

bench: setup  ## packet-hops per second, here and in ns-3 where it is installed
	@$(PYTHON) -m benchmarks

docs:  ## the documentation as a site: build/docs/index.html
	@scripts/docs

clean:  ## remove the environment and all caches in this folder; results stay, and so does the kernel
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# Ebbtide. Every verb makes what it needs first; `make` alone lists them.

VENV := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help run setup test test-again test-long check bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

run: ## Start a platform of four nodes, run the example job and show its result
	@deploy/bootstrap examples
	@deploy/first-light

setup: ## Make the private environment in .venv, or bring it up to date
	@deploy/bootstrap examples test

test: ## Run everything that must pass
	@deploy/bootstrap examples test
	@$(VENV)/python tests/suite.py

test-again: ## Run all tests once more, without set-up, checks and frameworks
	@test -x $(VENV)/pytest || { echo 'no environment with tests yet: run make setup first' >&2; exit 2; }
	@$(VENV)/python tests/suite.py --again

test-long: ## Run the tests that take too long for every day
	@deploy/bootstrap examples test
	@$(VENV)/python tests/suite.py --long

check: ## Format, lint, types, import rules, dead code, spelling
	@deploy/bootstrap examples test
	@$(VENV)/python tests/suite.py --check

bench: ## Measure; writes docs/BENCHMARKS.md's figures as JSON
	@deploy/bootstrap examples test
	@$(VENV)/python -m tests.bench

clean: ## Remove the environment and all caches; state of platforms stays
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

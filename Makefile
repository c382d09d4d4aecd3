# What contributors run. `make` lists the targets. Tools are those of .venv, or of the active environment without one.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
.DEFAULT_GOAL := help
.PHONY: help setup test smoke slow lint format types docs golden package ci

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' Makefile | awk -F '|' '{ printf "%-9s %s\n", $$1, $$2 }'

setup:  ## make .venv with bitsynth from this checkout, and what tests, lint and docs need
	python3 -m venv .venv
	python -m pip install -e '.[test,lint,docs]'

test:  ## run the fast tests; ARGS="-k words tests/unit" chooses some
	python -m pytest $(ARGS)

smoke:  ## run one test of each part, in less than a minute
	python -m pytest -m "smoke and not slow" $(ARGS)

slow:  ## run the slow tests; ARGS="tests/networks" chooses some
	python -m pytest -m slow $(ARGS)

lint:  ## check style, formatting and the order of imports
	ruff check .
	ruff format --check .
	lint-imports

format:  ## format the Python and repair what ruff can
	ruff check --fix .
	ruff format .

types:  ## check the types
	mypy

docs:  ## build the site in site/, warnings are errors
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

golden:  ## write the golden C in tests/golden anew, and show what changed
	python tests/unit/test_golden.py
	git diff --stat -- tests/golden

package:  ## build the sdist and the wheel in dist/
	python -m build

ci:  ## run everything CI runs; makes .venv anew and takes up to half an hour
	.ci/run

# Every target works twice, and after a half-finished first run.
# Choose the Python with PYTHON=python3.12; without it the first of 3.12 and 3.11 that starts is taken.
.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash -o pipefail

BIN := .venv/bin
# Each run has temporary folders and caches of its own, so that two `make test` at once do not meet.
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
# The sources that the linters read; the tests of the types are the tests themselves.
TYPED := $(wildcard scripts/*.py)

# A version manager's stub may exist and not start, so each candidate is run.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for p in python3.12 python3.11 python3; do \
	  $$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && exit; \
	done; echo python3)
else
EXACT := --exact
endif

# A sourced ROS 2 must not mix with the environment's own.
unexport PYTHONPATH PYTHONHOME

.PHONY: help setup demo test test-long lint format bench lock clean distclean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## Make .venv with the locked packages, the ROS messages and the command osma
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c '' 2>/dev/null || { echo "setup: $(PYTHON) does not start (not found, or a version manager's stub); use Python 3.11 or 3.12: apt-get install python3.12 python3.12-venv python3.12-dev, then make setup PYTHON=python3.12" >&2; exit 3; }
	@$(PYTHON) scripts/setup_environment.py $(EXACT)

demo: setup ## Run the whole job once: robot, policies, monitor, report
	@$(BIN)/osma demo

# The nodes' tests one after another, since they wait for processes, in a worker that may crash (-n 1); the rest share
# the cores, file by file (some files check at their end that all of their figures were used). Both run, whatever fails.
test: setup ## Run the tests, the long ones aside
	@status=0; $(PYTEST) -m "ros and not long" -n 1 || status=1; \
	$(PYTEST) -m "not ros and not long" -n 2 --dist loadfile || status=1; exit $$status

test-long: setup ## Run the long tests: fuzzing, many signals, host benchmarks
	@$(PYTEST) -m long -n 1

lint: setup ## Check style, types and the direction of imports
	@status=0; for check in "ruff check ." "ruff format --check ." mypy "mypy $(TYPED)" lint-imports; do \
	  echo "lint: $$check"; $(BIN)/$$check || status=1; \
	done; exit $$status

format: setup ## Format the sources and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## Run the speed comparisons of bench/ (or those named: BENCH="ssi stl"); figures go to bench/results/
	@$(BIN)/python scripts/run_benchmarks.py $(BENCH)

lock: ## Resolve the lock files anew (needs uv: pip install uv)
	@command -v uv >/dev/null || { echo "lock: uv not found; get it with: pip install uv" >&2; exit 3; }
	@for version in 3.11 3.12; do \
	  uv pip compile --quiet --upgrade pyproject.toml requirements/ros.in --python-version $$version --no-emit-index-url \
	    --extra sim --extra report --extra dask --extra hdf5 --extra live --extra onnx --extra rtamt --extra so101 --extra bench --extra dev \
	    --custom-compile-command "make lock" --output-file requirements/lock-$$version.txt || exit 1; \
	done

clean: ## Remove what was built and measured; .venv stays, make setup builds the messages again
	@rm -rf build install log dist *.egg-info bench/results .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## Remove the environment too
	@rm -rf .venv

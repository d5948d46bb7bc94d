# Every target works twice, and after a half-finished first run. Choose the Python with `make setup PYTHON=python3.12`.
.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash

# The first Python that starts and is a version with ROS wheels; a version manager's stub may exist and not start.
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && exit; done; echo python3)
BIN := .venv/bin

# A sourced ROS 2 must not mix with the environment's own.
unexport PYTHONPATH PYTHONHOME

.PHONY: help setup
help:
	@echo "make setup  environment, messages, commands"

setup:
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) not found: apt-get install python3 python3-venv" >&2; exit 3; }
	@$(PYTHON) scripts/setup_environment.py

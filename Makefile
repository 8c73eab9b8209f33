# `make demo` and `make test` are all that a fresh clone needs; every target runs under a plain POSIX sh.
PYTHON ?= python3
PORT ?= 7860
CHECKPOINT ?= checkpoints/majority
PY = .venv/bin/python
TRAIN = $(PY) -m attnkit.train --snapshots 16 --out "$(CHECKPOINT)"

.PHONY: help demo test train report bench lint typecheck screenshots clean analysis attnkit checkpoints tests benchmarks
.DEFAULT_GOAL := help

help: ## say what the targets do
	@grep -E '^[a-z]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 14

demo: .venv/run.stamp $(if $(HF),.venv/hf.stamp) ## serve the app on http://127.0.0.1:7860 (PORT= for another port, HF= for a transformers model)
	@test -n "$(HF)" || test -f "$(CHECKPOINT)/config.json" || $(TRAIN)
	GRADIO_SERVER_NAME=127.0.0.1 GRADIO_SERVER_PORT=$(PORT) GRADIO_ANALYTICS_ENABLED=False $(PY) demo/app.py $(if $(HF),--hf "$(HF)")

test: .venv/dev.stamp ## run the whole test suite
	$(PY) -m pytest

train: .venv/run.stamp ## train the majority classifier into checkpoints/majority, with 16 snapshots on the way
	$(TRAIN)

report: .venv/run.stamp ## run every study of the checkpoint; the page is reports/majority/report.html
	$(PY) -m analysis.all_studies --checkpoint "$(CHECKPOINT)"

bench: .venv/dev.stamp ## side-by-side speed measurements
	$(PY) -m benchmarks

lint: .venv/dev.stamp ## ruff: style, imports, common faults
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

typecheck: .venv/dev.stamp ## mypy
	$(PY) -m mypy

screenshots: .venv/dev.stamp ## redraw the README's pictures in a real Chromium
	$(PY) -m docs.screenshots

clean: ## remove the environment, caches and reports (checkpoints stay)
	rm -rf .venv build reports attnkit.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: requirements.txt pyproject.toml | .venv/bin/python
	$(PY) -m pip install -q --disable-pip-version-check -r requirements.txt
	$(PY) -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

.venv/hf.stamp: .venv/run.stamp requirements-hf.txt
	$(PY) -m pip install -q --disable-pip-version-check -r requirements-hf.txt
	@touch $@

.venv/dev.stamp: .venv/run.stamp requirements-dev.txt requirements-hf.txt
	$(PY) -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	@touch $@

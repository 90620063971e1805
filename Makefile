# Each target sets up what it needs; a fresh machine needs only python3 (3.11 or later), make and a package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXAMPLES := build/examples
EMBEDDINGS := build/sentence-embeddings
SAGEMAKER := build/sagemaker
FUZZ_MINUTES ?= 10
SOAK_MINUTES ?= 60

.PHONY: help serve sentence-embeddings sagemaker test check bench fuzz soak stress protos docs clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 22

serve: $(VENV)/.examples $(EXAMPLES)/.built ## Serve the example models on ports 8000 (HTTP), 8001 (gRPC) and 8002 (metrics)
	exec $(BIN)/halimede serve --model-repository $(EXAMPLES)/models

sentence-embeddings: $(VENV)/.examples $(EMBEDDINGS)/.built ## Serve text embeddings: tokenizer, encoder and pooling as an ensemble
	exec $(BIN)/halimede serve --model-repository $(EMBEDDINGS)/models

sagemaker: $(VENV)/.examples $(SAGEMAKER)/.built ## Serve an ensemble as a SageMaker container does, on port 8080
	SAGEMAKER_BASE_DIR=$(SAGEMAKER) SAGEMAKER_TRITON_DEFAULT_MODEL_NAME=read_digit exec $(BIN)/serve

test: $(VENV)/.test ## Run the tests
	scripts/need-debian-package.sh h2load nghttp2-client
	scripts/need-debian-package.sh curl curl
	$(BIN)/pytest

check: $(VENV)/.test ## Lint, check types, the import contract and that generated files are fresh
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_protos.py --check
	$(BIN)/python scripts/generate_docs.py --check

bench: $(VENV)/.bench ## Measure against the physical limits; BENCH_ARGS="--only json --rounds 3" narrows it
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

fuzz: $(VENV)/.test ## Run the property tests for FUZZ_MINUTES, with fresh examples in each round
	scripts/fuzz.sh $(BIN)/pytest $(FUZZ_MINUTES)

soak: $(VENV)/.test ## Load Python models for SOAK_MINUTES while a process of theirs is killed every second
	$(BIN)/python -m scripts.soak $(SOAK_MINUTES)

stress: $(VENV)/.test ## Load, invoke and unload archives from 32 clients for 5 minutes, and for 5 more within a budget
	$(BIN)/python -m scripts.stress_sagemaker 5
	$(BIN)/python -m scripts.stress_sagemaker 5 --managed

protos: $(VENV)/.test ## Generate the protobuf modules
	$(BIN)/python scripts/generate_protos.py

docs: $(VENV)/.test ## Generate the reference pages of docs/
	$(BIN)/python scripts/generate_docs.py

clean: ## Remove what was built, the virtual environment too
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	PYTHON="$(PYTHON)" scripts/make-venv.sh $(VENV)

# One stamp for each set of extras: $(VENV)/.test stands for `pip install -e .[test]`.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@

$(EXAMPLES)/.built: $(VENV)/.examples examples/build.py $(shell find examples/digits examples/simple -type f -not -name '*.pyc')
	$(BIN)/python -m examples.build $(EXAMPLES)
	touch $@

$(EMBEDDINGS)/.built: $(VENV)/.examples $(shell find examples/sentence-embeddings -type f -not -name '*.pyc')
	$(BIN)/python examples/sentence-embeddings/build.py $(EMBEDDINGS)
	touch $@

$(SAGEMAKER)/.built: $(VENV)/.examples $(shell find examples/digits examples/python/models/add_sub examples/sagemaker -type f -not -name '*.pyc')
	$(BIN)/python -m examples.sagemaker.build $(SAGEMAKER)
	touch $@

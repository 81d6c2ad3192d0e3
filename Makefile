PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# All builds have the features and the variables of maturin's build: Cargo would compile the crates anew for other features,
# and PyO3 for other values. maturin writes the file, which describes the interpreter.
FEATURES := python,test-support
PYO3_CONFIG = $(shell ls -t $(CURDIR)/target/maturin/pyo3-config-* 2>/dev/null | head -n 1)
CARGO = $(if $(PYO3_CONFIG),PYO3_CONFIG_FILE=$(PYO3_CONFIG)) PYO3_BUILD_EXTENSION_MODULE=1 cargo

.PHONY: help demo extension cluster-demo check test fuzz packages bench cluster-torture dev docs wheels generate lint \
	lint-rust lint-python format

help: ## Say what each target does.
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 18

demo: ## Set up, and walk both APIs against a service and an agent of our own.
	@echo "Compiles ginnel into .venv and target/, then walks both APIs with real traffic."
	@echo "The first time takes about 5 minutes on two cores; later a few seconds."
	@$(MAKE) --no-print-directory extension
	$(BIN)/python examples/remote_tour.py
	$(BIN)/python examples/agent_tour.py

cluster-demo: dev packages ## Start PostgreSQL, three nodes, HAProxy and two agents on this machine, and kill a node.
	$(BIN)/python deploy/cluster/demo.py

check: $(VENV)/ready ## Check formats, lints, types and unit tests of what compiles already; under a minute.
	cargo fmt --check
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(CARGO) test --quiet --lib --features $(FEATURES)
	$(CARGO) clippy --quiet --lib --features $(FEATURES) -- -D warnings
	$(BIN)/mypy

test: dev packages ## Set up, and run every test, type check and lint.
	@$(MAKE) --no-print-directory --jobs 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) lint-python lint-rust docs
	$(CARGO) test --features $(FEATURES)
	$(BIN)/python -m pytest -n 4 --dist worksteal
	FEATURES=$(FEATURES) tests/wheels.sh dev

SECONDS ?= 60
FUZZ_TARGETS ?= $(notdir $(wildcard tests/fuzz/corpus/*))

fuzz: ## Run each fuzz target for SECONDS=60 under libFuzzer; needs Rust nightly and cargo-fuzz.
	cargo +nightly fuzz build --fuzz-dir tests/fuzz --sanitizer none --target-dir target/fuzz libfuzzer
	tests/fuzz/run $(SECONDS) $(FUZZ_TARGETS)

cluster-torture: dev packages ## Kill, stop and cut off nodes of a cluster for an hour; GINNEL_CLUSTER_* say how often.
	GINNEL_CLUSTER_KILLS=$${GINNEL_CLUSTER_KILLS:-200} GINNEL_CLUSTER_RESTARTS=$${GINNEL_CLUSTER_RESTARTS:-50} \
	GINNEL_CLUSTER_STOPS=$${GINNEL_CLUSTER_STOPS:-20} GINNEL_CLUSTER_PARTITIONS=$${GINNEL_CLUSTER_PARTITIONS:-34} \
	GINNEL_CLUSTER_WRITERS=$${GINNEL_CLUSTER_WRITERS:-50} GINNEL_CLUSTER_AGENTS=$${GINNEL_CLUSTER_AGENTS:-20} \
	GINNEL_CLUSTER_JUMPS=$${GINNEL_CLUSTER_JUMPS:-20} GINNEL_CLUSTER_VISITS=$${GINNEL_CLUSTER_VISITS:-300} \
	GINNEL_CLUSTER_LATEST=$${GINNEL_CLUSTER_LATEST:-2} GINNEL_CLUSTER_BACK_WITHIN=$${GINNEL_CLUSTER_BACK_WITHIN:-20} \
	GINNEL_CLUSTER_HISTORIES=$${GINNEL_CLUSTER_HISTORIES:-1000} GINNEL_CLUSTER_RECORD=target/torture.json \
	$(BIN)/python -m pytest -s tests/cluster
	$(BIN)/python tests/cluster/summary.py target/torture.json

packages: ## Install Chromium, faketime, HAProxy, nginx, Node.js, pebble and PostgreSQL from Debian if there are none, for the tests, and an issuer from npm.
	tests/install-packages
	tests/install-issuer

bench: ## Build for release, and run all benchmarks beside their peers; prints figures, goals and verdicts.
	bench/run.py

extension: $(VENV)/demo-ready
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --features $(FEATURES)

dev: $(VENV)/ready extension ## Build the extension module in place, in a virtual environment for development.

$(VENV)/demo-ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --group build
	touch $@

$(VENV)/ready: $(VENV)/demo-ready
	$(BIN)/pip install --quiet --group tests
	touch $@

docs: dev ## Build the documentation into site/.
	$(BIN)/zensical build --clean --strict
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet
	cp -r target/doc site/rust

wheels: $(VENV)/ready ## Build the sdist and the wheel, and try it with each CPython here.
	tests/wheels.sh

generate: dev ## Write anew what comes from the code: Python classes, pages of the reference, public names, licences.
	$(BIN)/python python/generate.py
	$(BIN)/python python/reference.py
	$(BIN)/python python/public_names.py
	$(BIN)/python python/licenses.py

lint: lint-rust lint-python ## Check formats, lints and types, without changing anything.

lint-rust: dev
	cargo fmt --check
	$(CARGO) clippy --all-targets --features $(FEATURES) -- -D warnings
	cargo check --quiet --manifest-path bench/Cargo.toml --target-dir target/bench

lint-python: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	cd examples/webhook-receiver && MYPYPATH=.:tests ../../$(BIN)/mypy --strict --exclude '' --config-file ../../pyproject.toml receiver.py tests/*.py
	$(BIN)/python python/licenses.py --check
	$(BIN)/python -m mypy.stubtest ginnel --mypy-config-file pyproject.toml --allowlist tests/stubtest-allowlist
	PATH="$(CURDIR)/$(BIN):$$PATH" pyright --verifytypes ginnel --ignoreexternal

format: dev ## Format all code.
	cargo fmt
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

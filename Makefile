# Every target works on a machine that has only Python, make and a package registry: the first one that runs
# makes .venv from the lock file. `make run` takes what serves and no more; any other lets .venv grow.

PYTHON ?= python3
LOCK_FLAGS ?=
PORT ?= 7070
FUZZ_SECONDS ?= 180
CHAOS_CYCLES ?= 2000
SOAK_SECONDS ?= 3600

BIN := .venv/bin
SERVING := .venv/.serving
INSTALLED := .venv/.installed
FUZZER := .venv-fuzz/.installed
BROWSER := .venv/.browser
TRACER := .venv/.tracer
ETCD := .venv/.etcd
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
# Where a sync takes no time, if there is room for everything that the tests write.
MEMORY := $(shell [ "$$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1)" -ge 4 ] 2>/dev/null && echo /dev/shm)
# Spark gives up on a worker that does not answer within ten seconds, so its tests come before the others.
LATER := nice -n 10

FAULTS := tests/crash tests/integration
SOAK := tests/crash/test_soak.py
USE := tests/acceptance tests/importers tests/dashboard

.DEFAULT_GOAL := help
.PHONY: help run cluster examples pipeline test test-queue test-faults test-soak test-use test-spark test-spark-lowest check check-format check-lint check-types check-layers check-asynchronous \
	bench fuzz format chaos soak faults \
	reference asynchronous docs docs-serve lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(SERVING) ## serve build/data as a broker, and say where to look
	$(BIN)/quiver serve --data build/data --port $(PORT)

cluster: $(INSTALLED) $(ETCD) ## serve a cluster on this machine: three brokers, etcd and a store, below build/cluster
	$(BIN)/quiver cluster demo --directory build/cluster --port $(PORT)

examples: $(SERVING) ## run the first examples: a queue, and the log below it
	$(BIN)/python examples/first_queue.py && $(BIN)/python examples/first_log.py

pipeline: $(INSTALLED) ## run a pipeline on Spark: orders in, revenue out, a report to look at
	$(BIN)/python examples/pipelines/first_pipeline.py

# Those of faults wait the most and take the longest, so they begin.
test: $(INSTALLED) ## run the tests, or those of ARGS; much of their time is waiting, so three parts run at a time
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	$(MAKE) --no-print-directory --output-sync=target --keep-going --jobs=3 test-faults test-soak test-spark test-queue test-use
endif

# All but the tests of faults, whose syncs and kills are to be of a real disk.
ifneq ($(MEMORY),)
test-spark test-queue test-use: export PYTEST_DEBUG_TEMPROOT := $(MEMORY)
endif

test-spark: $(INSTALLED) ## run the tests of the pipeline
	$(PYTEST) tests/spark

# Not a part of `make test`: it installs a Spark of its own, of half a gigabyte.
test-spark-lowest: ## run some tests of the pipeline on the lowest Spark that is supported
	test -d build/spark-lowest || $(PYTHON) -m venv build/spark-lowest
	build/spark-lowest/bin/pip install --quiet -e '.[server,spark]' 'pyspark[connect]==4.2.*' pytest pytest-timeout hypothesis
	build/spark-lowest/bin/python -m pytest -p no:cacheprovider tests/spark/test_read.py tests/spark/test_connect.py -k 'every_use or every_column or catalog or client'

# All that is in none of the other parts, so that nothing is left out.
test-queue: $(INSTALLED) ## run the tests of the queue and of its parts
	$(LATER) $(PYTEST) $(addprefix --ignore=,tests/spark $(FAULTS) $(USE))

test-faults: $(INSTALLED) $(TRACER) $(ETCD) ## run the tests with crashes, failing disks and real processes
	$(LATER) $(PYTEST) --ignore=$(SOAK) $(FAULTS)

# It sleeps most of the time and wants to be woken in time, so it is not one of those whose work can wait.
test-soak: $(INSTALLED) ## run a broker for two minutes with a million delayed messages
	$(PYTEST) $(SOAK)

chaos: $(INSTALLED) $(TRACER) $(ETCD) ## run the fault suite with CHAOS_CYCLES kills and faults in each test, and kill Spark at every step
	$(PYTEST) -m fault --timeout=0 --chaos-cycles=$(CHAOS_CYCLES) tests/crash $(ARGS)
	$(PYTEST) --timeout=0 --chaos-cycles=$(CHAOS_CYCLES) tests/spark/test_write_kill9.py tests/spark/test_jobs_kill9.py

soak: $(INSTALLED) ## let a broker work for SOAK_SECONDS with a million delayed messages, and see that it stays small
	$(PYTEST) --timeout=0 --soak-seconds=$(SOAK_SECONDS) $(SOAK) $(ARGS)

faults: $(INSTALLED) $(TRACER) $(ETCD) ## run every test of a fault, and write the table in docs/concepts/guarantees.md
	$(PYTEST) -m fault --fault-record=build/faults.json $(ARGS)
	$(BIN)/python tools/fault_table.py build/faults.json

test-use: $(INSTALLED) $(BROWSER) ## run the tests that use it as people do: examples, imports, the dashboard in a browser
	$(LATER) $(PYTEST) $(USE)

check: check-format check-lint check-types check-layers check-asynchronous ## run every static check

check-format: $(INSTALLED) ## is the code formatted?
	$(BIN)/ruff format --check .

check-lint: $(INSTALLED) ## does the linter agree?
	$(BIN)/ruff check .

check-types: $(INSTALLED) ## do the types hold, strictly?
	$(BIN)/mypy

check-layers: $(INSTALLED) ## does every layer import only those below it?
	$(BIN)/lint-imports --no-logo

check-asynchronous: $(INSTALLED) ## is quivermq.aio what its sources say?
	$(BIN)/python tools/asynchronous.py --check

bench: $(INSTALLED) ## measure
	$(BIN)/python -m benchmarks $(ARGS)

fuzz: $(FUZZER) ## look for bytes that break the reader of frames, for FUZZ_SECONDS
	.venv-fuzz/bin/python tests/fuzz/fuzz_frame.py -max_total_time=$(FUZZ_SECONDS) \
		-use_value_profile=1 -print_final_stats=1 -artifact_prefix=build/ $(ARGS)

format: $(INSTALLED) ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

reference: $(INSTALLED) ## write the generated pages of docs/reference anew
	$(BIN)/python tools/reference.py

asynchronous: $(INSTALLED) ## write the modules of quivermq.aio anew that are made from the synchronous ones
	$(BIN)/python tools/asynchronous.py

# Both tell what a release after the next will need, which concerns nobody who reads.
docs docs-serve: export NO_MKDOCS_2_WARNING = 1

docs: $(INSTALLED) ## build the documentation as a site into build/site; a link that leads nowhere is an error
	$(BIN)/mkdocs build --strict --quiet
	@echo 'build/site/index.html'

docs-serve: $(INSTALLED) ## show the site at http://127.0.0.1:8000, anew with each change
	$(BIN)/mkdocs serve --strict --dev-addr 127.0.0.1:8000 --watch CHANGELOG.md --watch CONTRIBUTING.md --watch examples

# The locks hold no registry address, so they serve every mirror. Pins stay unless pyproject.toml rules them out;
# LOCK_FLAGS=--upgrade takes the newest allowed versions instead. The small one has the pins of the large one, so
# that one environment can grow from the first to the second.
lock: ## resolve the dependencies anew into requirements-dev.lock and requirements-serve.lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet 'uv>=0.9,<1'
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--extra dev $(LOCK_FLAGS) --output-file requirements-dev.lock pyproject.toml
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--extra serve --constraints requirements-dev.lock --output-file requirements-serve.lock pyproject.toml

clean: ## remove everything that was made
	rm -rf .venv .venv-lock .venv-fuzz .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What a broker needs, and nothing compiled that nobody runs: some 50 MB. The build backend comes from the lock as
# well, hence no build isolation, and no use for the one that a Python 3.11 brings along.
$(SERVING): requirements-serve.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements-serve.lock
	$(BIN)/python -m pip install --quiet --no-compile --no-build-isolation --no-deps --editable .
	@$(BIN)/python -m pip uninstall --quiet --yes setuptools 2>/dev/null
	@touch $@

# The rest, in the same place: pins are the same, so what is there already stays. It is compiled by all cores, and
# without the tests of others: pip would do it alone and take longer for that than for everything else. Compiled it
# has to be, because what a compiler warns of would be an error in the first test that imports it.
$(INSTALLED): requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements-dev.lock
	$(BIN)/python -W ignore -m compileall -q -j 0 -x '/tests?/' .venv/lib >/dev/null || true
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $(SERVING) $@

# The dashboard is used as a person would, in a real browser, and that comes from the system.
# Not at the same time as the other tool, because the package manager does one thing at a time.
$(BROWSER): $(INSTALLED) | $(TRACER)
	@for name in chromium chromium-browser google-chrome; do command -v $$name && break; done >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-liberation; \
		else \
			echo 'The tests of the dashboard need chromium, and there is none: install it, on Debian and Ubuntu' >&2; \
			echo 'with `sudo apt-get install chromium`, or put chromium or google-chrome on the PATH.' >&2; \
			exit 1; \
		fi; }
	@touch $@

# A broker whose disk fails is one whose system calls do, and that takes a tool of the system.
$(TRACER): $(INSTALLED)
	@command -v strace >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -qq -y --no-install-recommends strace; \
		else \
			echo 'The tests of a failing disk need strace, and there is none: install it, on Debian and Ubuntu with' >&2; \
			echo '`sudo apt-get install strace`.' >&2; \
			exit 1; \
		fi; }
	@touch $@

# Brokers of a cluster decide in etcd. Not at the same time as the other tools, because the package manager does one
# thing at a time. Nor is it started: the tests start their own.
$(ETCD): $(INSTALLED) | $(TRACER) $(BROWSER)
	@command -v etcd >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && RUNLEVEL=1 apt-get install -qq -y --no-install-recommends etcd-server; \
		else \
			echo 'The tests of a cluster need etcd, and there is none: install it, on Debian and Ubuntu with' >&2; \
			echo '`sudo apt-get install etcd-server`.' >&2; \
			exit 1; \
		fi; }
	@touch $@

# Apart and not locked, because atheris has no wheels for every platform and nothing else needs it.
$(FUZZER): requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv .venv-fuzz
	@.venv-fuzz/bin/python -m pip install --quiet 'atheris>=3,<4' || { \
		echo 'make fuzz: atheris cannot be installed here, so there is nothing to fuzz with.' >&2; \
		echo 'It needs Linux and a Python it has wheels for: try PYTHON=python3.11. The tests run its' >&2; \
		echo 'corpus without it.' >&2; exit 1; }
	.venv-fuzz/bin/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	.venv-fuzz/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

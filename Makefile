# make demo | test | test-fast | real | compare | bench | lint | licences | audit: each first sets up what it needs (a virtual environment in .venv).

PYTHON ?= python3
SEED ?= 0
CORES ?= $(shell nproc)
WORKERS ?= 2
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
RUN = demo$(if $(filter-out 0,$(SEED)),-seed$(SEED))
BIN = .venv/bin
SNAKEMAKE = PATH="$(CURDIR)/$(BIN):$$PATH" snakemake --profile workflow/profiles/local --quiet rules --cores $(CORES)

# Only files whose hash is in the lock. Sources are built with the locked setuptools, not with one that pip fetches unchecked.
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-build-isolation --use-pep517

.PHONY: setup peers demo compare real bench bench-corpus bench-training bench-rl bench-grader bench-sandbox test test-fast test-environment test-cluster lint lock licences audit schema clean clean-store

setup: .venv/complete

# Safe to interrupt: an installation that did not finish starts again from nothing, because a killed pip leaves packages it cannot read.
.venv/complete: requirements/cpu.lock
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	test ! -e .venv/installing || rm -rf .venv
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	touch .venv/installing
	sed -n '/^setuptools==/,/[^\\]$$/p' requirements/cpu.lock > .venv/setuptools.txt
	sed -n '/^torch==/,/[^\\]$$/p' requirements/cpu.lock > .venv/torch.txt
	$(INSTALL) -r .venv/setuptools.txt
	$(INSTALL) -r .venv/torch.txt || $(INSTALL) --index-url $(TORCH_INDEX) -r .venv/torch.txt
	$(INSTALL) -r requirements/cpu.lock
	rm .venv/installing
	touch $@

# The packages that tests and benchmarks compare this project with.
peers: .venv/peers

.venv/peers: .venv/complete requirements/peers.lock
	$(INSTALL) -r requirements/peers.lock
	touch $@

demo: setup
	$(SNAKEMAKE) --configfile configs/demo.yaml --config run=$(RUN) seed=$(SEED)
	@echo "Report: results/$(RUN)/report/index.html"

# The comparison of RL methods (section 5.2 of the paper) in miniature, from the demo's instruct model.
compare: results/demo/sft/instruct/manifest.json
	$(SNAKEMAKE) --configfile configs/compare.yaml
	@echo "Report: results/compare/report/index.html"

results/demo/sft/instruct/manifest.json:
	$(MAKE) demo

# Your own pages and benchmarks: make real WEB=<folder of *.warc.gz> BENCH=<folder of benchmark files>
# The folders are looked through before the demo, which takes minutes.
real: setup
	@test -n "$(WEB)" -a -n "$(BENCH)" || { echo 'usage: make real WEB=<folder of *.warc.gz and lists> BENCH=<folder of benchmark files>'; exit 2; }
	$(BIN)/python workflow/real.py --web "$(WEB)" --bench "$(BENCH)" --demo results/$(RUN) --output work/real.yaml
	$(MAKE) demo
	$(SNAKEMAKE) --configfile configs/real.yaml work/real.yaml
	@echo "Report: results/real/report/index.html"

PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest
# Each worker takes a whole file at a time, the longest files first (tests/conftest.py).
PARALLEL = --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder

test: setup peers
	$(PYTEST) $(PARALLEL)

# For the loop of an editor. Leaves out tests marked `slow` and these files, which run whole programs, train, sample or wait for limits.
SLOW = workflow recipes state stage single_gpu cluster configs generation rl reward training training_exact evaluate_stage \
  rl_train sandbox sandbox_layers sandbox_weak corpus crawl_dedup crawl_generated crawl_kill faults fuzz meta survival profiles

test-fast: setup peers
	$(PYTEST) $(PARALLEL) -m 'not slow and not network' $(SLOW:%=--ignore=tests/test_%.py)

test-environment: setup
	$(PYTEST) tests/test_environment.py -m network

# A Slurm of two nodes on this machine, in namespaces of its own; it takes root on Debian, and 20 minutes on two cores.
test-cluster: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/cluster/slurm.sh python -m pytest tests/test_cluster.py -m slurm

# Each prints a table of ours beside its named peers, measured in the same run, and writes results/bench/<name>.json.
# DATA=<folder> makes bench-corpus and bench-grader use the larger data sets that docs/measured.md describes.
BENCHMARK = PYTHONPATH="$(CURDIR)" $(BIN)/python tests/benchmarks

bench: bench-corpus bench-training bench-rl bench-grader bench-sandbox

bench-corpus bench-grader: ARGUMENTS = $(if $(DATA),--data "$(DATA)")
bench-corpus bench-training bench-rl bench-grader bench-sandbox: bench-%: setup peers
	$(BENCHMARK)/$*.py $(ARGUMENTS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pipeline.config --check
	$(SNAKEMAKE) --configfile configs/demo.yaml --lint

schema: setup
	$(BIN)/python -m pipeline.config

# Resolves requirements/*.in again, with the hashes of all files of a release. Left out: three packages whose default builds need CUDA
# and break `import transformers`. Where the index of torch's CPU build is out of reach: make lock TORCH="--find-links FOLDER-OF-ITS-WHEEL"
TORCH ?= --torch-backend cpu
COMPILE = cd requirements && ../$(BIN)/uv pip compile --quiet --no-header --generate-hashes --python-version 3.11

lock: setup
	$(COMPILE) $(TORCH) $(addprefix --no-emit-package ,torchvision torchaudio torchcodec) --output-file cpu.lock cpu.in
	$(COMPILE) --no-deps --output-file peers.lock peers.in
	$(COMPILE) --no-deps --output-file slurm.lock slurm.in
	$(COMPILE) --output-file audit.lock audit.in

licences: setup
	$(BIN)/python requirements/licences.py

# Known vulnerabilities of the locked packages, by osv.dev. Fails if it finds some or if the service does not answer.
audit: .venv/audit/complete
	@sed 's/+cpu//' requirements/cpu.lock > .venv/audit/cpu.lock
	@if PYTHONPATH=.venv/audit $(BIN)/python -m pip_audit --vulnerability-service osv --disable-pip --require-hashes --strict \
	  --progress-spinner off -r .venv/audit/cpu.lock -r requirements/peers.lock -r requirements/slurm.lock 2> .venv/audit/log; \
	then tail -n 1 .venv/audit/log; \
	else grep '^Found' .venv/audit/log || echo "audit: no answer from the service: $$(tail -n 1 .venv/audit/log)"; exit 1; fi

.venv/audit/complete: .venv/complete requirements/audit.lock
	rm -rf .venv/audit
	$(INSTALL) --target .venv/audit -r requirements/audit.lock
	touch $@

# Drops the demo's stored results that its configuration no longer names. Other runs: python -m pipeline.status --clean-store
clean-store: setup
	$(BIN)/python -m pipeline.status --configfile configs/demo.yaml --config run=$(RUN) seed=$(SEED) --clean-store

clean:
	rm -rf results work .snakemake

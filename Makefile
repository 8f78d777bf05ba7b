# SPDX-License-Identifier: Apache-2.0
# Builds, tests and installs epochfs (GNU make). `make help` lists the verbs.
#
#   V=1                 show every command
#   CC=clang            another compiler (gcc 12 and clang 14 are checked)
#   BUILD=dir           the build folder, `build` by default
#   SAN=address|thread  AddressSanitizer + UBSan, or ThreadSanitizer, in $(BUILD)-asan, $(BUILD)-tsan
#   DEBUG=1             the order of locks is checked (as with SAN), in $(BUILD)-debug
#   WERROR=1            warnings are errors (the default where CI=true)
#   ARGS=...            more arguments for the test runner of check-unit and check-mount
#
# Sources are found by wildcard: lib/*/*.c make libepochfs.a; fs/*.c and tools/*.c make the program;
# each tests/unit/test_*.c, tests/fuzz/fuzz_*.c and tests/bench/bench_*.c is a program of its own.

VERSION := 0.1.0

BUILD  ?= build
SAN    ?=
V      ?= 0
ARGS   ?=
ifeq ($(CI),true)
WERROR ?= 1
endif

ifeq ($(origin CC),default)
CC := gcc
endif
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

ifneq ($(V),1)
Q := @
say = @printf '  %-7s %s\n' '$1' '$2'
else
say = @:
endif

# ---- the build folder and flags of each kind of build

suffix_address  := -asan
suffix_thread   := -tsan
suffix_fuzz     := -fuzz
suffix_afl      := -afl
suffix_coverage := -coverage
san_address     := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
san_thread      := -fsanitize=thread -fno-omit-frame-pointer
san_fuzz        := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
san_afl         := -fsanitize=address,undefined -fno-sanitize-recover=undefined
san_coverage    := --coverage
# These check the order of locks, too (lib/util/lock.h).
lock_checks     := $(if $(filter address thread fuzz afl,$(SAN)),-DLOCK_CHECKS -DLOCK_CHECKS_STACK,$(if $(filter 1,$(DEBUG)),-DLOCK_CHECKS))
ifneq ($(SAN),)
ifeq ($(suffix_$(SAN)),)
$(error SAN=$(SAN) is unknown: use address, thread, fuzz, afl or coverage)
endif
endif
O := $(BUILD)$(suffix_$(SAN))$(if $(filter 1,$(DEBUG)),-debug)
MINUTES ?= 30
RESULTS ?= $(O)/results

# ---- flags

WARNINGS := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wold-style-definition \
	-Wpointer-arith -Wwrite-strings -Wundef -Wformat=2 -Wvla -Wimplicit-fallthrough
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif
DEFINES := -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=314 \
	-DEPOCHFS_VERSION='"$(VERSION)"' $(lock_checks)
ifeq ($(SAN),)
HARDENING := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
else
# The instrumentation confuses gcc's flow analysis.
WARNINGS += $(if $(findstring clang,$(CC)),,-Wno-maybe-uninitialized)
endif
HARDENING += -fstack-protector-strong -fPIE
OPTIMIZE := $(if $(filter coverage,$(SAN)),-O1,-O2) -g

# One run of pkg-config a set; what is missing is reported when something is compiled, so that
# `make test` can install it first.
MINIMUM       := fuse3:3.14.0 libcurl:7.87.0 libcrypto:3.0.0 sqlite3:3.40.0 jansson:2.13 liblz4:1.9.3 expat:2.2.10 libmicrohttpd:0.9.75
LIB_PACKAGES  := liblz4 sqlite3 libcrypto jansson libcurl expat libmicrohttpd
lib_cflags    := $(shell pkg-config --cflags $(LIB_PACKAGES) 2>/dev/null)
lib_libs      := $(shell pkg-config --libs $(LIB_PACKAGES) 2>/dev/null)
fuse_cflags   := $(shell pkg-config --cflags fuse3 2>/dev/null)
fuse_libs     := $(shell pkg-config --libs fuse3 2>/dev/null)
check_cflags   = $(shell pkg-config --cflags check 2>/dev/null)
check_libs     = $(shell pkg-config --libs check 2>/dev/null)

ALL_CFLAGS := -std=gnu11 $(OPTIMIZE) $(WARNINGS) $(DEFINES) $(HARDENING) $(san_$(SAN)) -I. -pthread \
	$(lib_cflags) $(CPPFLAGS) $(CFLAGS)
ALL_LDFLAGS := -pie -Wl,-z,relro,-z,now $(san_$(SAN)) -pthread $(LDFLAGS)

# ---- what there is

lib_objects   := $(patsubst %.c,$(O)/%.o,$(wildcard lib/*/*.c))
face_objects  := $(patsubst %.c,$(O)/%.o,$(filter-out tools/main.c,$(wildcard fs/*.c tools/*.c)))
main_source   := $(wildcard tools/main.c)
programs      := $(if $(main_source),$(O)/epochfs)
unit_programs := $(patsubst tests/unit/%.c,$(O)/tests/%,$(wildcard tests/unit/test_*.c))
fuzz_names    := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
replays       := $(patsubst %,$(O)/tests/%,$(fuzz_names))
fuzzers       := $(patsubst %,$(O)/fuzz/%,$(fuzz_names))
benches       := $(patsubst tests/bench/%.c,$(O)/bench/%,$(wildcard tests/bench/bench_*.c))

.PHONY: all tests demo picture test scale check-unit check-mount check-user check-crash check-fault check-damage check-model check-differential check-enumerate check-power soak check-alloc check-alloc-some check-asan check-tsan check-bare dist check-batch compare-kills check-protocols protocols check-trainer-kills check-loaded lint format coverage man completions docs fuzz \
	fuzz-programs fuzz-run bench bench-parts install install-strip uninstall clean help FORCE

all: $(O)/libepochfs.a $(programs) ## build the library and the program

# ---- packages

# A verb that runs tests installs what it lacks before anything is compiled; `make` and `make install` only say what is missing.
# PACKAGES=smoke is for machines that are to have no more than some of the tests need.
PACKAGES ?= test
of_test  := tests protocols check-protocols check-unit check-mount check-user check-crash check-fault check-trainer-kills check-loaded check-damage check-model check-differential check-enumerate soak \
	check-alloc check-alloc-some check-asan check-tsan coverage
of_power := check-power
of_bench := bench-parts
of_lint  := lint format man completions
wanted   := $(foreach set,test power bench lint,$(if $(filter $(of_$(set)),$(MAKECMDGOALS)),$(if $(filter test,$(set)),$(PACKAGES),$(set))))
# A makefile that is written where something was installed: then make begins anew, and finds the libraries.
-include $(wanted:%=$(BUILD)/packages-%.mk)
$(BUILD)/packages-%.mk: FORCE
	$(Q)tests/tools/packages.sh $* --note $@

# ---- compiling and linking

# Rewritten only when the compiler or the flags change: then everything is compiled anew.
$(O)/flags: FORCE
	@pkg-config --exists fuse3 $(LIB_PACKAGES) || { \
		echo 'development packages are missing: run tests/tools/packages.sh build' >&2; exit 1; }
	@tests/tools/versions.sh '$(CC)' $(MINIMUM)
	@mkdir -p $(O)
	@printf '%s\n' '$(CC) $(subst ','\'',$(ALL_CFLAGS) $(ALL_LDFLAGS))' | cmp -s - $@ || \
		printf '%s\n' '$(CC) $(subst ','\'',$(ALL_CFLAGS) $(ALL_LDFLAGS))' > $@

$(O)/fs/%.o $(O)/tools/%.o: EXTRA_CFLAGS = $(fuse_cflags)
# What a test itself holds when an assertion ends it lies on its stack then, and is no leak.
$(O)/tests/unit/%.o: EXTRA_CFLAGS = $(fuse_cflags) $(check_cflags) $(if $(filter address,$(SAN)),-O0)

$(O)/%.o: %.c $(O)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<

# Archives are made anew, so that the object of a removed source is gone from them.
$(O)/libepochfs.a: $(lib_objects) $(O)/lib-list
$(O)/libface.a: $(face_objects) $(O)/face-list
$(O)/%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

$(O)/lib-list: list := $(lib_objects)
$(O)/face-list: list := $(face_objects)
$(O)/%-list: FORCE
	@mkdir -p $(O)
	@printf '%s\n' '$(list)' | cmp -s - $@ || printf '%s\n' '$(list)' > $@

link = $(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^)

$(O)/epochfs: $(O)/tools/main.o $(O)/libface.a $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(fuse_libs) $(lib_libs) -lm

# The same for tests: of the same objects, and one that lets it obey EPOCHFS_FAULT (lib/util/faultpoint.h).
armed := $(O)/tests/fault/armed.o
$(O)/tests/epochfs: $(O)/tools/main.o $(armed) $(O)/libface.a $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(fuse_libs) $(lib_libs) -lm
$(unit_programs): $(armed)

# And one whose time passes when a test says so (tests/fault/slow_clock.h).
SLOW_CLOCK_WRAPPED := clock_wall_ns clock_mono_ns cond_wait_until_at process_started_ns fstat64
$(O)/tests/protocols/epochfs: $(O)/tools/main.o $(O)/tests/fault/slow_clock.o $(O)/libface.a $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(SLOW_CLOCK_WRAPPED:%=-Wl,--wrap=%) $(fuse_libs) $(lib_libs) -lm

# With SAN=address unit tests can let each allocation of the library fail (tests/alloc).
ifeq ($(SAN),address)
alloc_objects := $(O)/tests/alloc/alloc.o $(O)/tests/alloc/alloc_run.o $(O)/tests/alloc/libepochfs.a
alloc_flags   := -Wl,--wrap=_exit,--wrap=tcase_fn_start
$(filter $(O)/tests/test_fs_% $(O)/tests/test_tools_%,$(unit_programs)): $(O)/tests/alloc/libface.a
$(unit_programs): $(alloc_objects)
endif
$(O)/tests/alloc/%.o: EXTRA_CFLAGS = $(check_cflags)
$(O)/tests/alloc/lib%.a: $(O)/lib%.a tests/alloc/alloc.syms
	$(Q)mkdir -p $(@D) && objcopy --redefine-syms=tests/alloc/alloc.syms $< $@
link_unit = $(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) $(alloc_flags) -o $@ \
	$(filter %.o,$^) $(if $(alloc_objects),$(filter-out $(O)/lib%.a,$(filter %.a,$^)),$(filter %.a,$^))

# A test whose name says fs or tools may also use what is in fs/ and tools/.
$(O)/tests/test_fs_% : $(O)/tests/unit/test_fs_%.o $(O)/libface.a $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link_unit) $(fuse_libs) $(lib_libs) $(check_libs) -lm
$(O)/tests/test_tools_% : $(O)/tests/unit/test_tools_%.o $(O)/libface.a $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link_unit) $(fuse_libs) $(lib_libs) $(check_libs) -lm
$(O)/tests/test_% : $(O)/tests/unit/test_%.o $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link_unit) $(lib_libs) $(check_libs) -lm

# A fuzz target is also an ordinary test that replays tests/fuzz/corpus/<name>/. Those whose name says tools may
# use what is in fs/ and tools/, too. afl-clang-fast puts AFL++'s own loop in the place of libFuzzer's.
$(O)/tests/fuzz_tools_% : $(O)/tests/fuzz/fuzz_tools_%.o $(O)/tests/fuzz/replay.o $(O)/libface.a $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(fuse_libs) $(lib_libs) -lm
$(O)/fuzz/fuzz_tools_% : $(O)/tests/fuzz/fuzz_tools_%.o $(O)/libface.a $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) -fsanitize=fuzzer $(fuse_libs) $(lib_libs) -lm
$(O)/tests/fuzz_% : $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/replay.o $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(lib_libs) -lm
$(O)/fuzz/fuzz_% : $(O)/tests/fuzz/fuzz_%.o $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) -fsanitize=fuzzer $(lib_libs) -lm

$(O)/bench/bench_% : $(O)/tests/bench/bench_%.o $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(lib_libs) -lm

# Histories beside a model (tests/enumerate): a program, and a unit test.
enumerate_objects := $(patsubst %.c,$(O)/%.o,$(wildcard tests/enumerate/*.c))
$(O)/tests/test_volume_enumerate: $(filter-out %/main.o,$(enumerate_objects))
$(O)/tests/enumerate/enumerate: $(enumerate_objects) $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(lib_libs) -lm

# The engine with a clock of its own, for tests/protocols/player.py.
protocol_objects := $(patsubst %.c,$(O)/%.o,$(wildcard tests/protocols/*.c)) $(O)/tests/enumerate/volume_files.o
CLOCK_WRAPPED    := clock_wall_ns clock_mono_ns cond_wait_until_at process_started_ns pthread_create pthread_join pthread_cond_wait \
	pthread_cond_signal pthread_cond_broadcast nanosleep usleep fstat64
$(O)/tests/protocols/protocols: $(protocol_objects) $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(CLOCK_WRAPPED:%=-Wl,--wrap=%) $(lib_libs) -lm

# The rules of saves alone: a driver of lib/saves, for tests/protocols/page.py and in tests.
$(filter $(O)/tests/test_saves_%,$(unit_programs)) $(filter $(O)/%/fuzz_saves,$(replays) $(fuzzers)): $(O)/tests/saves/driver.o
$(O)/tests/saves/saves: $(O)/tests/saves/main.o $(O)/tests/saves/driver.o $(O)/libepochfs.a
	$(call say,LINK,$@)
	$(link) $(lib_libs) -lm

$(O)/tests/recorder: tests/power/recorder.c $(O)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 $(WARNINGS) $(DEFINES) $(fuse_cflags) -o $@ $< $(fuse_libs)

# What is preloaded into the daemon has no sanitizer of its own.
$(O)/tests/libcalls.so: tests/crash/calls.c
$(O)/tests/libstatfs.so: tests/fault/statfs.c
$(O)/tests/lib%.so: $(O)/flags
	$(call say,CC,$(filter %.c,$^))
	$(Q)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 $(WARNINGS) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -fPIC -shared -o $@ $(filter %.c,$^)

.SECONDARY:
-include $(shell [ -d $(O) ] && find $(O) -name '*.d')

# ---- tests

# What builds a whole tree uses all processors, unless make was told how many.
jobs = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

tests: all $(O)/tests/epochfs $(unit_programs) $(replays)

# ThreadSanitizer's shadow memory does not fit the address layouts that recent kernels draw.
layout := $(if $(filter thread,$(SAN)),$(shell setarch -R true 2>/dev/null && echo setarch -R))

check-unit: tests ## run the unit tests (ARGS="test_util_buf ..." picks some)
	$(Q)$(layout) tests/tools/run_units.py --san '$(SAN)' --results $(RESULTS) --bin $(O)/tests $(ARGS)

mount_programs := $(O)/tests/epochfs $(O)/tests/protocols/epochfs $(O)/tests/test_remote_conformance $(O)/tests/test_remote_conformance_races $(O)/tests/test_remote_delete_many $(O)/tests/libcalls.so $(O)/tests/libstatfs.so $(O)/tests/recorder $(O)/tests/enumerate/enumerate

check-mount: all $(mount_programs) ## run the tests on a real mount (ARGS="-k name" and other pytest arguments)
	$(Q)$(layout) tests/tools/run_mount.sh '$(O)' '$(RESULTS)' '$(SAN)' $(ARGS)

check-user: all $(mount_programs) ## the same as an ordinary user: fusermount3, no passthrough (as root: of a private namespace)
	$(Q)$(layout) tests/tools/run_user.sh '$(O)' '$(RESULTS)' '$(SAN)' $(ARGS)

check-crash: ## kill the daemon after each system call that changes the disk (ARGS="--crashes 100" takes some)
	$(Q)MOUNT_LIMIT=86400 $(MAKE) check-mount ARGS='-k test_crash -s --dist load --crashes 0 $(ARGS)'

check-trainer-kills: ## kill a trainer after each call that changes its directory, and load what is left (ARGS="--trainer-kills 10" takes some)
	$(Q)MOUNT_LIMIT=86400 $(MAKE) check-mount ARGS='-k test_trainer_kills -s --dist load --timeout 3600 --trainer-kills 0 $(ARGS)'

check-loaded: ## the tests on a real mount beside a load of four times the processors (ARGS="-k name" picks), some hours
	$(Q)$(MAKE) $(jobs) all $(mount_programs)
	$(Q)MOUNT_LIMIT=86400 tests/tools/loaded.py $(MAKE) check-mount ARGS='$(ARGS)'

check-fault: ## let each system call on the cache's disk fail with ENOSPC and EIO (ARGS="--faults 100" takes some)
	$(Q)MOUNT_LIMIT=86400 $(MAKE) check-mount ARGS='-k test_fault -s --dist load --faults 0 $(ARGS)'

check-damage: ## damage every object of a remote in every way (ARGS="--damage-only 'pack packs/'" takes some)
	$(Q)MOUNT_LIMIT=86400 $(MAKE) check-mount ARGS='-k test_damaged_objects -s -n 0 --timeout 86400 --damages 0 $(ARGS)'

check-model: $(O)/tests/epochfs ## histories of operations, kills and crashes beside a model (ARGS="--seed N --histories 2000", "--replay FILE")
	$(Q)EPOCHFS_BIN=$(abspath $(O)/tests/epochfs) PYTHONDONTWRITEBYTECODE=1 $(layout) /usr/bin/python3 tests/model/run.py $(ARGS)

check-differential: $(O)/tests/epochfs ## an hour of random operations on a mount and on an ordinary directory (ARGS="--seed N --seconds 60", "--replay FILE")
	$(Q)EPOCHFS_BIN=$(abspath $(O)/tests/epochfs) PYTHONDONTWRITEBYTECODE=1 $(layout) /usr/bin/python3 tests/differential/differential.py $(ARGS)

check-enumerate: all $(O)/tests/enumerate/enumerate ## all short histories beside a model of POSIX and the contract (ARGS="--on mount --all 4 --jobs 2", "--replay TEXT")
	$(Q)PYTHONDONTWRITEBYTECODE=1 $(layout) /usr/bin/python3 tests/enumerate/histories.py '$(O)' $(ARGS)

protocols: $(O)/tests/protocols/protocols $(O)/tests/saves/saves ## play what real programs do when they save, in all ways, and compare with the table (ARGS="NAME... -v", "--write", "--random 1000")
	$(Q)PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/protocols/protocol_run.py '$(O)' $(ARGS)

check-protocols: $(O)/tests/protocols/protocols $(O)/tests/saves/saves ## some plays of each, by a fresh seed that is printed (ARGS="--seed N")
	$(Q)EPOCHFS_BUILD='$(O)' PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/protocols
	$(Q)PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/protocols/protocol_run.py '$(O)' --some 4 --results $(RESULTS) $(ARGS)

check-power: all $(O)/tests/recorder ## power losses on a recorded disk (ARGS="--points N --seed S --fs xfs --passthrough off"; 0: every barrier)
	$(Q)PYTHONDONTWRITEBYTECODE=1 tests/power/power.py $(O)/epochfs $(O)/tests/recorder $(ARGS)

soak: all ## MINUTES=30 of writers, readers, rollbacks, drops, gc, remounts and faults together (ARGS="--seed S"; SAN=address too)
	$(Q)PYTHONDONTWRITEBYTECODE=1 $(layout) tests/soak/soak.py $(O)/epochfs --minutes $(MINUTES) --san '$(SAN)' $(ARGS)

alloc = $(Q)tests/tools/run_alloc.py --bin $(BUILD)-asan/tests --results $(BUILD)-asan/results
check-alloc: ## let allocations fail in the unit tests, one from each place (ARGS="test_meta_collection", "--every"; see run_alloc.py), an hour or two
	$(Q)$(MAKE) $(jobs) SAN=address tests
	$(alloc) $(ARGS)
check-alloc-some: ## 20 s of it, by a fresh seed
	$(Q)$(MAKE) $(jobs) SAN=address tests
	$(alloc) --sample 3 --seconds 20

check-asan: ## unit and mount tests under AddressSanitizer and UBSan
	$(Q)tests/tools/run_parts.py --totals $(BUILD)-asan/results \
		'build=$(MAKE) $(jobs) SAN=address tests' \
		'unit tests=$(MAKE) SAN=address check-unit' \
		'mount tests=$(MAKE) SAN=address check-mount'

check-tsan: ## unit and mount tests under ThreadSanitizer
	$(Q)tests/tools/run_parts.py --totals $(BUILD)-tsan/results \
		'build=$(MAKE) $(jobs) SAN=thread tests' \
		'unit tests=$(MAKE) SAN=thread check-unit' \
		'mount tests=$(MAKE) SAN=thread check-mount'

test: ## install what is missing, build, run every test: what CI runs
	$(Q)tests/tools/packages.sh test
	$(Q)tests/tools/run_parts.py --totals $(BUILD)/results --totals $(BUILD)-asan/results \
		'build=$(MAKE) $(jobs) tests' \
		'build with ASan=$(MAKE) $(jobs) SAN=address tests' \
		'unit tests=$(MAKE) check-unit' \
		'unit tests under ASan=$(MAKE) SAN=address check-unit' \
		'allocations that fail=$(MAKE) check-alloc-some' \
		'protocols=$(MAKE) check-protocols' \
		'mount tests=$(MAKE) check-mount' \
		'mount tests as a user=$(MAKE) check-user ARGS="-k \"(test_contract or test_nodes or test_ordinary or test_differential) and not [on\""' \
		'lint=$(MAKE) lint'

check-bare: ## the README on minimal roots of Debian 12 and 13, from nothing (ARGS="trixie" picks; as root)
	$(Q)tests/tools/packages.sh bare
	$(Q)/usr/bin/python3 tests/bare/bare.py --results $(BUILD)/bare/results $(ARGS)

dist: ## packages of HEAD for Debian 12 and 13, and a source RPM, in $(BUILD)/dist, built and tried in minimal roots (ARGS="trixie" picks; as root)
	$(Q)tests/tools/packages.sh bare
	$(Q)PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/bare/dist.py --packages $(BUILD)/dist $(ARGS)

check-batch: ## jobs under real Slurm and HTCondor, in roots of Debian 12 and 13 (ARGS="trixie -k condor" picks; as root), a quarter of an hour
	$(Q)tests/tools/packages.sh bare
	$(Q)PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/batch/batch.py --results $(BUILD)/batch/results $(ARGS)

demo: ## a small training run through a mount, killed, rolled back, resumed
	$(Q)tests/tools/packages.sh demo
	$(Q)$(MAKE) $(jobs) all
	$(Q)EPOCHFS_BIN=$(abspath $(O)/epochfs) tests/demo/demo.sh

picture: ## draw a run of the demo for the README (tests/demo/demo.svg)
	$(Q)tests/tools/packages.sh demo
	$(Q)$(MAKE) $(jobs) all
	$(Q)EPOCHFS_BIN=$(abspath $(O)/epochfs) tests/demo/picture.py tests/demo/demo.svg

scale: ## a distributed S3 engine that loses OSDs and gateways during upload and restore
	$(Q)tests/tools/packages.sh scale
	$(Q)$(MAKE) $(jobs) $(O)/tests/epochfs
	$(Q)tests/scale/scale.py $(abspath $(O)/tests/epochfs) $(ARGS)

FUZZER ?= libfuzzer
fuzz_libfuzzer := SAN=fuzz CC=clang
fuzz_afl       := SAN=afl CC=afl-clang-fast
fuzz: ## build the fuzz targets with clang's libFuzzer, in $(BUILD)-fuzz/fuzz (FUZZER=afl: AFL++, in $(BUILD)-afl/fuzz)
	$(Q)tests/tools/packages.sh fuzz
	$(Q)AFL_QUIET=1 $(MAKE) $(jobs) $(or $(fuzz_$(FUZZER)),$(error FUZZER=$(FUZZER) is unknown: use libfuzzer or afl)) fuzz-programs
fuzz-programs: $(fuzzers)

MINUTES ?= 60
fuzz-run: fuzz ## fuzz all targets in turn, MINUTES=60 in all, and end with a verdict (FUZZER=afl, ARGS="fuzz_tree ...")
	$(Q)tests/tools/fuzz_run.py --fuzzer $(FUZZER) --minutes $(MINUTES) --bin $(BUILD)$(if $(filter afl,$(FUZZER)),-afl,-fuzz)/fuzz \
		--out $(BUILD)-fuzz/found $(ARGS)

bench: ## epochfs beside others: a table and a plot in $(O)/bench (ARGS="--short", "--quick"; see compare.py), two to three hours
	$(Q)tests/tools/packages.sh bench
	$(Q)$(MAKE) $(jobs) all $(benches)
	$(Q)/usr/bin/python3 tests/bench/compare.py $(abspath $(O)/epochfs) --out $(O)/bench $(ARGS)

compare-kills: ## who keeps the good file: a killed save on epochfs and on others, into tests/bench/kills.md (ARGS="--only s3fs --moment in-write"; as root)
	$(Q)tests/tools/packages.sh kills
	$(Q)$(MAKE) $(jobs) all
	$(Q)PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/bench/compare_kills.py $(abspath $(O)/epochfs) --out tests/bench/kills.md $(ARGS)

bench-parts: $(benches) $(programs) ## the pipeline, the limits on a real mount (ARGS="seal list" picks), remotes (REMOTES=rgw) beside bare servers
	$(Q)for b in $(benches); do echo "$$b"; $$b || exit 1; done
	$(Q)echo tests/bench/limits.py; EPOCHFS_BIN=$(abspath $(O)/epochfs) tests/bench/limits.py $(ARGS)
	$(Q)echo tests/bench/remotes.py; tests/bench/remotes.py $(abspath $(O)/epochfs) $(REMOTES)

coverage: ## unit and mount tests with line coverage, by file
	$(Q)$(MAKE) $(jobs) SAN=coverage tests
	$(Q)find $(BUILD)-coverage -name '*.gcda' -delete
	-$(Q)$(MAKE) SAN=coverage check-unit
	-$(Q)$(MAKE) SAN=coverage check-mount
	$(Q)tests/tools/coverage.py $(BUILD)-coverage

# ---- the source itself

c_files := $(wildcard lib/*/*.[ch] fs/*.[ch] tools/*.[ch] tests/*/*.[ch])

lint: ## check format, warnings, headers, layers (of calls, too), scripts, and that epochfs(1) and completions are as `make man completions` makes them
	$(Q)$(MAKE) $(jobs) all
	$(Q)tests/tools/lint.sh '-std=gnu11 $(filter-out -Werror,$(WARNINGS)) $(subst ','\'',$(DEFINES)) -I. -pthread $(lib_cflags) $(fuse_cflags) $(check_cflags)' '$(O)'

format: ## clang-format all C
	$(Q)clang-format -i $(c_files)

# ---- the manual

pages := $(wildcard packaging/man/*.[1-9])

man: all ## epochfs(1) anew, of its template and the tables of commands and options
	$(Q)tests/tools/man_page.py $(O)/epochfs

completions: all ## those of the shells anew, of their templates and the tables of commands and options
	$(Q)tests/tools/completions.py $(O)/epochfs

docs: ## the manual as HTML, in build/docs
	$(Q)tests/tools/packages.sh docs
	$(Q)mkdir -p $(BUILD)/docs
	$(Q)for page in $(pages); do mandoc -W error,stop -T html $$page >$(BUILD)/docs/page || exit 1; \
		sed 's|<b>\(epochfs[a-z-]*\)</b>(\([1-8]\))|<a href="\1.\2.html">&</a>|g' $(BUILD)/docs/page >$(BUILD)/docs/$${page##*/}.html; done; rm $(BUILD)/docs/page
	@echo "  $(BUILD)/docs"

# ---- installing

# The variables of the GNU coding standards; PREFIX= is taken for prefix=, too.
prefix      = $(or $(PREFIX),/usr/local)
exec_prefix = $(prefix)
bindir      = $(exec_prefix)/bin
datarootdir = $(prefix)/share
datadir     = $(datarootdir)
mandir      = $(datarootdir)/man
# mount(8) looks for its helpers here alone.
rootsbindir       = /sbin
bashcompletiondir = $(datadir)/bash-completion/completions
zshcompletiondir  = $(datadir)/zsh/site-functions
fishcompletiondir = $(datadir)/fish/vendor_completions.d

INSTALL         = install
INSTALL_PROGRAM = $(INSTALL)
INSTALL_DATA    = $(INSTALL) -m 644

examples     := $(wildcard packaging/examples/*)
examples_at   = $(DESTDIR)$(datadir)/epochfs/examples
helper_at     = $(DESTDIR)$(rootsbindir)/mount.epochfs
completions_at = $(DESTDIR)$(bashcompletiondir)/epochfs $(DESTDIR)$(zshcompletiondir)/_epochfs $(DESTDIR)$(fishcompletiondir)/epochfs.fish
page_at       = $(DESTDIR)$(mandir)/man$${page\#\#*.}/$${page\#\#*/}
# What examples and pages say of where things are.
relocate      = sed -i 's|/usr/local/bin/|$(bindir)/|g; s|/usr/local/share/|$(datadir)/|g'

install: all ## install under DESTDIR, prefix (prefix=$$HOME/.local needs no root; bindir, mandir, datadir, rootsbindir)
	$(Q)$(INSTALL_PROGRAM) -D $(O)/epochfs $(DESTDIR)$(bindir)/epochfs
	$(Q)for page in $(pages); do $(INSTALL_DATA) -D $$page $(page_at) && $(relocate) $(page_at) || exit 1; done
	$(Q)ln -sf mount.epochfs.8 $(DESTDIR)$(mandir)/man8/mount.fuse.epochfs.8
	$(Q)if mkdir -p $(DESTDIR)$(rootsbindir) 2>/dev/null && [ -w $(DESTDIR)$(rootsbindir) ]; then \
		$(INSTALL) packaging/mount.epochfs $(helper_at) && \
		sed -i 's|^epochfs=[^ ]*|epochfs=$(bindir)/epochfs|' $(helper_at) && \
		ln -sf mount.epochfs $(DESTDIR)$(rootsbindir)/mount.fuse.epochfs; \
	else echo 'installed without $(rootsbindir)/mount.epochfs, which fstab and mount -t epochfs need: that is for root'; fi
	$(Q)$(INSTALL_DATA) -D packaging/completions/epochfs.bash $(DESTDIR)$(bashcompletiondir)/epochfs
	$(Q)$(INSTALL_DATA) -D packaging/completions/_epochfs $(DESTDIR)$(zshcompletiondir)/_epochfs
	$(Q)$(INSTALL_DATA) -D packaging/completions/epochfs.fish $(DESTDIR)$(fishcompletiondir)/epochfs.fish
	$(Q)for example in $(examples); do \
		mode=644; [ ! -x $$example ] || mode=755; \
		$(INSTALL) -m $$mode -D $$example $(examples_at)/$${example##*/} && $(relocate) $(examples_at)/$${example##*/} || exit 1; done

install-strip: ## the same, the program without its symbols
	$(Q)$(MAKE) INSTALL_PROGRAM='$(INSTALL_PROGRAM) -s' install

uninstall: ## remove what install put there
	$(Q)rm -f $(addprefix $(examples_at)/,$(notdir $(examples))) $(completions_at) $(DESTDIR)$(bindir)/epochfs
	$(Q)for page in $(pages); do rm -f $(page_at); done; rm -f $(DESTDIR)$(mandir)/man8/mount.fuse.epochfs.8
	$(Q)if grep -qs '^epochfs=$(bindir)/epochfs ' $(helper_at); then \
		rm -f $(helper_at) $(DESTDIR)$(rootsbindir)/mount.fuse.epochfs; fi
	$(Q)rmdir $(examples_at) $(examples_at:%/examples=%) 2>/dev/null || true

clean: ## remove the build folders
	$(Q)rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-afl $(BUILD)-coverage $(BUILD)-debug

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

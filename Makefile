# SPDX-License-Identifier: Apache-2.0
#
#   make build                 module (for all stock kernels) and programs
#   make test                  everything that can be checked; ends with "N passed, N failed"
#   make demo                  uksm next to in-kernel KSM, in a guest
#   make bench EXPERIMENT=x    one experiment; results in results/
#   make bench EXPERIMENT=x COUNT=instructions   the same by instructions instead of
#                              time: emulated, and the same on a busy machine
#   make bench EXPERIMENT=x COUNT=instructions PROFILE=1   and where they go, by owner
#                              and by function, also a saved page; with CACHES=1 also what
#                              a processor's caches would add, by a model
#   make figure               memory saved over its cost, each setting: docs/savings.svg
#   make traces [TRACES="redis node"]   capture them anew from real things that are started
#                              for it, for EXPERIMENT=replay
#   make simulate EXPERIMENT=x [SEED=1] [OPTIONS=..]   one experiment on a simulated host;
#                              results in results/
#   make simulate-seeds [COUNT=100000] [SEED=1]   so many simulated runs with faults, from
#                              this seed on (long)
#   make simulate-seed SEED=n  one of them
#   make calibrate [KERNEL=..] measures what things cost in a guest that counts
#                              instructions; writes crates/simulator/costs/counted.toml
#   make calibrate-caches [KERNEL=..]   holds the model of caches against this machine's
#                              processor
#   make realism [KERNEL=..]   the same workloads in guests and on simulated hosts, and
#                              how well they agree; fails if a row is out of bounds
#   make vm [KERNEL=6.1]       a shell in a guest with module and program
#   make vm-test [KERNEL=..] [FILTER=..]   the guest's tests alone
#   make fuzz [CALLS=1000000] [KERNEL=..] [SEED=..]   random calls of the module
#   make module-test [KERNEL=7.3]   the module's tests alone
#   make long-test [KERNEL=newest]   tests of the daemon that take half a minute or more
#   make large-test [KERNEL=..]   tests that take minutes, for a fast host
#   make debug-kernel-test [KERNEL=..]  the same on a kernel that checks itself, built here (6.12)
#   make kasan-kernel-test     the same with KASAN
#   make clang-kernel-test     the same on a kernel that clang built, as the module then
#   make cfi-kernel-test [KERNEL=7.3]   the same with ThinLTO and kCFI, by Debian 13's clang
#   make native-ksm [OPTIONS=..]   uksm run --backend ksm beside in-kernel KSM on this
#                              machine, as root: sets KSM's knobs for five minutes and
#                              puts them back
#   make foreign-test [KERNEL=..] [FILTER=..]   the kernel's own tests and stress-ng,
#                              with and without the module
#   make setup                 what the others need (they call it)
#   make setup-test [RELEASE=12|13]   demo and tests in a clean Debian, from nothing (long)
#   make program               the program alone, for the C library of this machine
#   make install [DESTDIR=..] [PREFIX=/usr/local]   program, manual, completions, unit,
#                              configuration (if there is none); after `make program`
#   make uninstall [PREFIX=..]   removes what install put there, but for the configuration
#   make deb                   Debian packages of module and program, in dist/
#   make deb-test [RELEASE=..]   installs, upgrades and purges them in a clean Debian (long)
#   make deb-guest [RELEASE=..] [TRANSCRIPT=..]   the same as an operator would, in a Debian that boots
#                              (long); what was typed and said is in dist/transcript.txt.
#                              UPGRADE=yes: Debian 12 becomes 13 while the daemon runs
#   make recording             the demo as a moving picture, docs/demo.svg
#   make metrics-check         what promtool says of the metrics and of the alert rules
#   make board-check           the board against Grafana's schema (needs node and npm)
#   make helm-check            what helm says of the chart (needs helm)
#   make clean                 drop what was built (the cache of kernels stays)
#
# KERNEL is a series (6.1, 6.12, 7.2, 7.3), its real-time flavour (6.1-rt, 6.12-rt), newest (of
# Debian 13 and its backports), or a series and -debug, -kasan, -clang or -cfi.

SHELL := /bin/sh
# A shell that is no login shell may miss cargo.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
CARGO ?= cargo
KERNEL ?=
COUNT ?=
PROFILE ?=
CACHES ?=
TRACES ?=

# Programs are built once, static and optimised: the same files run here and in
# the guest.
TARGET := x86_64-unknown-linux-gnu
STATIC_FLAGS := -Ctarget-feature=+crt-static -Cstrip=debuginfo
OUTPUT := $(or $(CARGO_TARGET_DIR),target)/$(TARGET)/release
PROGRAMS := uksm-vm uksm-guest uksm-bench uksm
VM := $(OUTPUT)/uksm-vm
SIMULATE := $(OUTPUT)/uksm-simulate
# It runs here only, and builds what it takes to the guests.
XTASK := $(or $(CARGO_TARGET_DIR),target)/debug/xtask
kernels = $(foreach kernel,$(KERNEL),--kernel $(kernel))

.PHONY: build test demo bench figure calibrate calibrate-caches realism simulator simulate simulate-seeds simulate-seed native-ksm vm vm-test long-test large-test fuzz module-test debug-kernel-test kasan-kernel-test clang-kernel-test cfi-kernel-test foreign-test \
	setup setup-test programs xtask program crates install uninstall deb deb-test deb-guest recording metrics-check board-check helm-check clean

build: programs
	$(VM) fetch $(kernels)

setup:
	@scripts/setup

setup-test:
	@RELEASE='$(RELEASE)' ONLY='$(ONLY)' KEEP='$(KEEP)' scripts/setup-test

programs: setup
	@RUSTFLAGS='$(STATIC_FLAGS)' $(CARGO) build --release --locked --workspace --target $(TARGET) \
		$(foreach program,$(PROGRAMS),--bin $(program))

# The suite is built with its tests: by itself it would be of other features of what both depend on, which would be compiled twice.
# Whatever stops that is one failure. What the guests run is built meanwhile, since its last minutes keep one processor busy; the
# suite waits for that, and says what is wrong with it.
test: setup
	@RUSTFLAGS='$(STATIC_FLAGS)' $(CARGO) build --quiet --profile guest --locked --workspace --target $(TARGET) \
		--bin uksm-guest --bin uksm >/dev/null 2>&1 & trap "kill $$! 2>/dev/null" INT TERM; \
	if $(CARGO) test --quiet --locked --workspace --no-run; then $(XTASK) suite; \
	else echo; echo "0 passed, 1 failed"; exit 1; fi

demo: programs
	$(OUTPUT)/uksm-bench demo

bench: programs
	@test -n "$(EXPERIMENT)" || { echo "name one by EXPERIMENT=; they are:" >&2; \
		$(OUTPUT)/uksm-bench list >&2; exit 2; }
	$(OUTPUT)/uksm-bench bench $(EXPERIMENT) $(if $(KERNEL),--kernel $(KERNEL)) \
		$(if $(COUNT),--count '$(COUNT)') $(if $(PROFILE),--profile) $(if $(CACHES),--caches) $(OPTIONS)

figure: programs
	$(OUTPUT)/uksm-bench bench installed --count instructions --results results/figure \
		-- --repeats 1 --cases once,guests
	$(OUTPUT)/uksm-bench figure results/figure/installed.json --case guests --output docs/savings.svg

traces: programs
	@python3 -B bench/traces/capture.py $(abspath $(OUTPUT))/uksm-bench $(TRACES)

calibrate: programs
	$(OUTPUT)/uksm-bench calibrate $(if $(KERNEL),--kernel $(KERNEL)) $(OPTIONS)

calibrate-caches: programs
	$(OUTPUT)/uksm-bench calibrate-caches --results $(or $(RESULTS),results/caches) \
		$(if $(KERNEL),--kernel $(KERNEL)) $(if $(OPTIONS),$(OPTIONS),-- --repeats 1)

# Results of its own: they are small, and must not replace those of `make bench`.
realism: programs
	$(OUTPUT)/uksm-bench realism --results $(or $(RESULTS),results/realism) \
		$(if $(KERNEL),--kernel $(KERNEL)) $(OPTIONS)

# The simulator needs neither guest nor module.
simulator: setup
	@RUSTFLAGS='$(STATIC_FLAGS)' $(CARGO) build --release --locked --workspace --target $(TARGET) \
		--bin uksm-simulate

simulate: simulator
	@test -n "$(EXPERIMENT)" || { echo "name one by EXPERIMENT=; they are:" >&2; \
		$(SIMULATE) list >&2; exit 2; }
	@$(SIMULATE) run $(EXPERIMENT) $(if $(SEED),--seed $(SEED)) $(OPTIONS)

simulate-seeds: simulator
	@$(SIMULATE) seeds --count $(or $(COUNT),100000) $(if $(SEED),--first $(SEED)) $(OPTIONS)

simulate-seed: simulator
	@test -n "$(SEED)" || { echo "name one by SEED=" >&2; exit 2; }
	@$(SIMULATE) seed $(SEED) $(OPTIONS)

# A static program loads no agent, so these are not those of the guests.
native-ksm: setup
	@test "$$(id -u)" -eq 0 || { echo "native-ksm: sets KSM's knobs: run it as root" >&2; exit 1; }
	$(CARGO) build --release --locked -p uksm -p uksm-agent -p uksm-bench
	$(or $(CARGO_TARGET_DIR),target)/release/uksm-bench native-ksm \
		--uksm $(or $(CARGO_TARGET_DIR),target)/release/uksm \
		--agent $(or $(CARGO_TARGET_DIR),target)/release/libuksm_agent.so $(OPTIONS)

vm: programs
	$(VM) shell $(kernels)

xtask: setup
	@$(CARGO) build --quiet --locked --workspace --bin xtask

vm-test: xtask
	$(XTASK) test $(kernels) $(foreach filter,$(FILTER),--filter $(filter))

# What `make test` leaves out since it takes half a minute and more each.
long-test: xtask
	$(XTASK) test $(or $(kernels),--kernel newest) --only-long

# Minutes of a large host each.
large-test: xtask
	$(XTASK) test $(kernels) --filter $(or $(FILTER),large_)

fuzz: CALLS ?= 1000000
fuzz: xtask
	$(XTASK) test $(kernels) --filter fuzz:: --fuzz-calls $(CALLS) $(if $(SEED),--seed $(SEED))

# A kernel that is built for tests has neither BPF nor seccomp, so the module's tests run on it.
MODULE_TESTS := counting::cpu_time counting::the_ $(addsuffix ::,attaching batch_requests charging draining extremes \
	failed_memory folding frames full_machine fuzz guard guard::device_memory huge_pages isolation line_hash loading mapping_kinds \
	mapping_lists mappings merging negative_controls nested_guest numa orphans page_table_entries pinned_pages reclaim \
	remote_writes requests sandbox sizes stress survival swap userfault) $(addprefix beside_ksm::,ksm merging pages unmerging) \
	$(addprefix held_locks::,a calls without) large_folios::folios
module_filters = $(foreach filter,$(or $(FILTER),$(MODULE_TESTS)),--filter $(filter))

module-test: xtask
	$(XTASK) test $(kernels) $(module_filters)

debug-kernel-test: xtask
	$(XTASK) test --kernel $(or $(KERNEL),6.12)-debug $(module_filters)

kasan-kernel-test: xtask
	$(XTASK) test --kernel $(or $(KERNEL),6.12)-kasan $(module_filters)

clang-kernel-test: xtask
	@for tool in ld.lld llvm-ar; do command -v $$tool >/dev/null || \
		{ echo "no $$tool here; run: apt-get install lld llvm" >&2; exit 1; }; done
	$(XTASK) test --kernel $(or $(KERNEL),6.12)-clang $(module_filters)

cfi-kernel-test: xtask
	$(XTASK) test --kernel $(or $(KERNEL),7.3)-cfi $(module_filters)

# Not part of `make test`: docs/foreign-suites.md has what came of it.
foreign-test: xtask
	$(XTASK) foreign $(kernels) $(foreach filter,$(FILTER),--filter $(filter))

# For packagers. The manual and completions are written by the program itself.
PREFIX ?= /usr/local
SBINDIR ?= $(PREFIX)/sbin
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
UNITDIR ?= $(PREFIX)/lib/systemd/system
# Where the program looks, whatever the prefix is.
CONFDIR := /etc/uksm
PROGRAM ?= $(or $(CARGO_TARGET_DIR),target)/release/uksm
# What `uksm exec` preloads; looked for in ../lib/uksm beside the program. A tree without it installs without.
LIBDIR ?= $(PREFIX)/lib/uksm
AGENT ?= $(or $(CARGO_TARGET_DIR),target)/release/libuksm_agent.so

program:
	@command -v $(CARGO) >/dev/null || { echo "no $(CARGO) here: what it needs is in docs/install.md, Requirements" >&2; exit 1; }
	$(CARGO) build --release --locked -p uksm -p uksm-agent

# What the program is made of: name, version and licence of each crate.
crates:
	@$(CARGO) tree --locked -p uksm --edges normal --prefix none --format '{p} {l}' | \
		sed -E -e '/ \(\/[^)]*\)/d' -e 's/ \(\*\)$$//' -e 's/ \(proc-macro\)//' | sort -u

# Neither sysusers nor tmpfiles nor modules-load: the daemon runs as root, and its unit makes its
# folders and loads the module, if there is one.
install:
	@test -x '$(PROGRAM)' || { echo "no program in $(PROGRAM): run make program first, or name it by PROGRAM=" >&2; exit 1; }
	install -d $(foreach dir,$(SBINDIR) $(MANDIR)/man1 $(BASHDIR) $(ZSHDIR) $(FISHDIR) $(UNITDIR) $(CONFDIR),\
		'$(DESTDIR)$(dir)')
	install -m 755 '$(PROGRAM)' '$(DESTDIR)$(SBINDIR)/uksm'
	@if test -e '$(AGENT)'; \
	then install -d '$(DESTDIR)$(LIBDIR)' && install -m 644 '$(AGENT)' '$(DESTDIR)$(LIBDIR)/libuksm_agent.so'; \
	else echo "no agent in $(AGENT): uksm exec --merge advised will not work: run make program, or name it by AGENT="; fi
	'$(PROGRAM)' man '$(DESTDIR)$(MANDIR)/man1'
	'$(PROGRAM)' completions bash >'$(DESTDIR)$(BASHDIR)/uksm'
	'$(PROGRAM)' completions zsh >'$(DESTDIR)$(ZSHDIR)/_uksm'
	'$(PROGRAM)' completions fish >'$(DESTDIR)$(FISHDIR)/uksm.fish'
	sed 's|=\(-*\)/usr/sbin/uksm |=\1$(SBINDIR)/uksm |' packaging/uksm.service >'$(DESTDIR)$(UNITDIR)/uksm.service'
	@if test -e '$(DESTDIR)$(CONFDIR)/config.toml'; \
	then echo "$(DESTDIR)$(CONFDIR)/config.toml is left as it is"; \
	else install -m 644 packaging/config.toml '$(DESTDIR)$(CONFDIR)/config.toml'; fi

uninstall:
	rm -f '$(DESTDIR)$(SBINDIR)/uksm' '$(DESTDIR)$(MANDIR)'/man1/uksm.1 '$(DESTDIR)$(MANDIR)'/man1/uksm-*.1 \
		'$(DESTDIR)$(BASHDIR)/uksm' '$(DESTDIR)$(ZSHDIR)/_uksm' '$(DESTDIR)$(FISHDIR)/uksm.fish' \
		'$(DESTDIR)$(LIBDIR)/libuksm_agent.so' '$(DESTDIR)$(UNITDIR)/uksm.service'
	@if test -d '$(DESTDIR)$(LIBDIR)'; then rmdir --ignore-fail-on-non-empty '$(DESTDIR)$(LIBDIR)'; fi

deb: setup
	@VERSION='$(VERSION)' OUT='$(OUT)' scripts/deb

deb-test: setup
	@RELEASE='$(RELEASE)' KEEP='$(KEEP)' scripts/deb-test

deb-guest: setup
	@RELEASE='$(RELEASE)' UPGRADE='$(UPGRADE)' KEEP='$(KEEP)' scripts/deb-guest $(TRANSCRIPT)

recording: programs
	scripts/record-demo $(OUTPUT)/uksm-bench

metrics-check: setup
	@scripts/metrics-check

board-check:
	@scripts/board-check

# Helm is in no package of Debian. What can be told without it, the tests of crates/uksm/src/cli/tests/guides.rs tell.
CHART := packaging/helm/uksm
helm-check:
	@command -v helm >/dev/null || { echo "no helm here: it comes from https://helm.sh, put it in the search path" >&2; exit 1; }
	helm lint $(CHART) --set image=registry.example/uksm:0.1.0
	helm template check $(CHART) --set image=registry.example/uksm:0.1.0 --set metrics.listen=0.0.0.0:9465 >/dev/null
	! helm template check $(CHART) >/dev/null
	! helm template check $(CHART) --set image=x --set imag=y >/dev/null

clean:
	$(CARGO) clean
	rm -rf results dist

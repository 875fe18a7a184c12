# The doors of the house. CI and people use the same ones; `make help` lists them.
#
#   make bench ONLY=board    one group of figures
#   make fuzz SECONDS=600    ten minutes for each fuzz target
#   make sim SEED=4711       one simulated fleet, with its story

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

ONLY ?=
SEED ?=
CELLS ?= 50
FIRST ?= 0
ARGS ?=
SECONDS ?= 60
# Google's own protobuf for a client in Python. Of one version: a new one is not to break a test of ours.
PROTOBUF := 7.36.2
# How root runs a target with the Rust that rustup has put into somebody's home, for an echo.
AS_ROOT := sudo env PATH=\"\$$PATH\" RUSTUP_HOME=\"\$${RUSTUP_HOME:-\$$HOME/.rustup}\" CARGO_HOME=\"\$${CARGO_HOME:-\$$HOME/.cargo}\"

.PHONY: help setup tools demo test check house fmt clippy deny bench sim fuzz vm security schemathesis package tar vmtest reference upgrade-mesh golden

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Quick and silent when nothing is missing. The C compiler is for SQLite, which is built from source.
setup: ## Install what a Debian-like machine with Rust is missing
	@if ! command -v cargo >/dev/null; then
		home=$$(getent passwd "$${SUDO_USER:-root}" | cut -d : -f 6)
		if [ -n "$${SUDO_USER:-}" ] && [ -x "$$home/.cargo/bin/cargo" ]; then
			echo "setup: sudo does not find the cargo of rustup. Call 'make demo' and whatever only builds without sudo;" >&2
			echo "       where root is needed: $(AS_ROOT) make ..." >&2
		else
			echo "setup: cargo is missing: install Rust (rustup), then try again" >&2
		fi
		exit 1
	fi
	if ! printf '#include <stdlib.h>\n' | cc -E -x c - >/dev/null 2>&1; then
		if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
			echo "setup: installing a C compiler"
			export DEBIAN_FRONTEND=noninteractive
			apt-get update -qq
			apt-get install -y -qq --no-install-recommends gcc libc6-dev make >/dev/null
		else
			echo "setup: no working C compiler. As root: apt-get install gcc libc6-dev make" >&2
			echo "       (on another system: its packages for cc and the C library's headers)" >&2
			exit 1
		fi
	fi
	for tool in fmt clippy; do
		if cargo $$tool --version >/dev/null 2>&1; then continue; fi
		if command -v rustup >/dev/null; then
			echo "setup: installing cargo $$tool"
			rustup -q component add $${tool/fmt/rustfmt}
		else
			echo "setup: cargo $$tool is missing: make check needs it" >&2
		fi
	done

# Without them some tests cannot run, and say so. Of prometheus only the program that reads rules is wanted,
# not a service on this machine. python3 and curl are what some of our pages show, beside the venv below.
tools: setup ## What some tests need beside that, from Debian's packages and PyPI; never fatal
	@missing=""
	command -v mksquashfs >/dev/null || missing="$$missing squashfs-tools"
	command -v mkfs.erofs >/dev/null || missing="$$missing erofs-utils"
	command -v runc >/dev/null || missing="$$missing runc"
	command -v curl >/dev/null || missing="$$missing curl ca-certificates"
	command -v python3 >/dev/null || missing="$$missing python3"
	python3 -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"
	promtool=no
	if command -v promtool >/dev/null || [ -x target/tools/promtool ]; then promtool=yes; fi
	if [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		if [ -n "$$missing" ]; then echo "tools: some tests will not run without (Debian's names):$$missing"; fi
	elif [ -n "$$missing" ] || [ $$promtool = no ]; then
		export DEBIAN_FRONTEND=noninteractive
		listed=yes
		apt-get update -qq || listed=no
		if [ $$listed = no ]; then echo "tools: no list of packages: some tests will not run"; fi
		if [ $$listed = yes ] && [ -n "$$missing" ]; then
			echo "tools: installing$$missing"
			apt-get install -y -qq --no-install-recommends $$missing >/dev/null || echo "tools: not installed:$$missing"
		fi
		if [ $$listed = yes ] && [ $$promtool = no ]; then
			echo "tools: unpacking promtool into target/tools"
			mkdir -p target/tools
			fetched=$$(mktemp -d)
			trap 'rm -rf "$$fetched"' EXIT
			if (cd "$$fetched" && apt-get -o APT::Sandbox::User=root download -qq prometheus && dpkg --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool); then
				mv "$$fetched/usr/bin/promtool" target/tools/promtool
			else
				echo "tools: no promtool: the alert rules are not checked"
			fi
		fi
	fi
	python=target/tools/python
	if ! "$$python/bin/python" -c 'from google import protobuf; assert protobuf.__version__ == "$(PROTOBUF)"' 2>/dev/null; then
		echo "tools: a Python with protobuf $(PROTOBUF) into $$python"
		rm -rf "$$python"
		mkdir -p target/tools
		if ! python3 -m venv "$$python" || ! "$$python/bin/python" -m pip install --quiet --disable-pip-version-check "protobuf==$(PROTOBUF)"; then
			rm -rf "$$python"
			echo "tools: no such Python: no client in another language is tried"
		fi
	fi

# To be called without sudo, whose PATH does not have the cargo of rustup: the script asks for root itself.
demo: setup ## A cluster and an app on this machine; cleans up at the end, or on Ctrl-C. Asks for sudo
	@cargo build -q --release -p volvox-coordinator -p volvox-agent -p volvox-cli
	packaging/demo target/release

# Table counts (of the tests with "table" or "page" in their names) and doctests come first, so that the
# closing lines of the main run end the log, followed only by what could not run. A test that must
# skip itself prints "SKIPPED <name>: <why>" on stderr and appends the same line to the file named
# in VOLVOX_SKIPPED.
test: setup tools ## Every test; says at the end which could not run, and why
	@skipped=$$(mktemp); tables=$$(mktemp); before=$$(mktemp); said=$$(mktemp)
	trap 'rm -f "$$skipped" "$$tables" "$$before" "$$said"' EXIT
	export VOLVOX_SKIPPED="$$skipped"
	export PATH="$$PATH:$(CURDIR)/target/tools"
	failed=""

	cargo test --workspace --no-run

	if ! cargo test --workspace --lib -- --show-output table page >"$$tables" 2>&1; then
		cat "$$tables"
		failed="$$failed tables"
	fi
	echo "--- tables held against docs/tables"
	grep '^table ' "$$tables" | sort -u || true
	for page in docs/tables/*.md; do
		name=$$(basename "$$page" .md)
		if [ -f "$$page" ] && ! grep -qE "^table $$name( \\([a-z ]+\\))?: [0-9]" "$$tables"; then
			echo "no passing test printed \"table $$name: <count> rows\" for $$page"
			failed="$$failed table:$$name"
		fi
	done
	: >"$$skipped"
	# Not by cargo run: asked for one package it would build all of them again, with other features.
	leftovers=$$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/leftovers
	"$$leftovers" take "$$before"

	if cargo nextest --version >/dev/null 2>&1; then
		cargo test --workspace --doc || failed="$$failed doctests"
		# Many tests wait for most of their time.
		cores=$$(nproc)
		cargo nextest run --workspace --no-fail-fast --test-threads $$((cores + cores / 2)) 2>&1 | tee "$$said" || failed="$$failed tests"
	else
		cargo test --workspace --no-fail-fast || failed="$$failed tests"
	fi

	"$$leftovers" compare "$$before" || failed="$$failed leftovers"
	if [ -s "$$skipped" ]; then
		echo "--- could not run here"
		sort -u "$$skipped"
		if [ "$$(id -u)" -ne 0 ]; then
			echo "--- more can as root (with a target folder of its own, so that nothing of yours becomes root's):"
			echo "    $(AS_ROOT) CARGO_TARGET_DIR=target/root make test"
		fi
	else
		echo "--- every test could run here"
	fi
	# .config/nextest.toml says which tests have a second try.
	if grep -q '^ *FLAKY' "$$said"; then
		echo "--- passed only when tried again: look for the fault, in the test or in what it tests"
		grep '^ *FLAKY' "$$said" | sort -u
	fi
	if [ -n "$$failed" ]; then
		echo "make test: FAILED:$$failed" >&2
		exit 1
	fi

check: fmt clippy deny ## Format, lints, licences and advisories: what a commit must pass

fmt: ## Is everything formatted?
	cargo fmt --all --check

clippy: setup ## Lints, warnings are errors; the fence around pure code is one of them
	cargo clippy --workspace --all-targets -- -D warnings

deny: ## Licences, sources and advisories of the dependencies, if cargo-deny is installed
	@if cargo deny --version >/dev/null 2>&1; then
		cargo deny check
	else
		echo "deny: NOT CHECKED: cargo-deny is not installed (cargo install --locked cargo-deny)"
	fi

bench: setup ## Print the figures and write bench-results.json; ONLY=group for one group
	cargo build --release -p volvox-agent --bin volvox-agent -p volvox-coordinator --bin volvox-coordinator
	cargo rustc --release -p volvox-agent --bin volvox-shim -- -C target-feature=+crt-static
	cargo run --release -p volvox-bench -- $(ONLY)

house: setup ## Figures of the source: lines, names, longest function, effects in pure code
	@cargo run -q -p volvox-tests --bin house

# The agent's test programs, or those that ONLY names ("containers attacks").
vm: setup ## The container tests in a virtual machine with cgroup v2 alone; root, installs qemu
	@list=$$(mktemp)
	trap 'rm -f "$$list"' EXIT
	tests=$$(for name in $(if $(ONLY),$(ONLY),containers attacks limits net); do
		if [ -f "agent/tests/$$name.rs" ]; then echo "--test $$name"; fi
	done)
	cargo test -p volvox-agent $$tests --no-run 2>&1 | tee "$$list"
	packaging/vm/run $$(sed -n 's/^ *Executable .*(\(.*\))$$/\1/p' "$$list")

# VERSION makes packages of another version from the same programs: for tests of upgrades.
package: setup ## Debian packages of agent, coordinator and CLI in target/debian; installs cargo-deb
	@cargo deb --version >/dev/null 2>&1 || cargo install --locked cargo-deb
	cargo build --release -p volvox-coordinator -p volvox-agent -p volvox-cli -p volvox-tests \
		--bin volvox-coordinator --bin volvox-agent --bin volvox --bin manuals
	cargo rustc --release -p volvox-agent --bin volvox-shim -- -C target-feature=+crt-static
	target/release/manuals target/package
	for package in volvox-agent volvox-coordinator volvox-cli; do
		cargo deb -q --no-build --strip -p "$$package" $(if $(VERSION),--deb-version "$(VERSION)")
	done
	ls target/debian/*.deb

# With musl where its target and compiler are to be had, so that nothing of the machine is needed.
tar: setup ## A static tar for other distributions in target/tar, for packaging/install.sh
	@packaging/tar

# Commands of the documentation that need a machine of their own are run in it too.
vmtest: package tar ## Packages and tar in a virtual machine: install, join, run, upgrade, reboot, remove; root, slow
	@packaging/vm/install

# As root, since routes and metrics are asked of a cluster that runs.
reference: setup ## Write docs/reference anew from the programs themselves; needs root
	@cargo build -q -p volvox-coordinator -p volvox-agent -p volvox-cli
	VOLVOX_WRITE=1 cargo test -q -p volvox-tests --test release -- reference cluster

golden: setup ## Write the golden bytes of messages and records again: right for what is new, see golden/src/lib.rs
	VOLVOX_WRITE=1 cargo test -q -p volvox-mesh -p volvox-agent --lib golden
	VOLVOX_WRITE=1 cargo test -q -p volvox-protocol --test golden

# Each in a folder of its own; the dependencies that both have are built once.
upgrade-mesh: setup ## A mesh of the version before foca and this one side by side: real processes; needs root
	@packaging/upgrade-mesh

security: setup ## What a container of ours and one of runc have, side by side; needs root and runc
	@cargo test -q -p volvox-agent --test attacks compare:: -- --nocapture

# With the assertions that the tests have: a seed that fails there fails here.
sim: setup ## Whole simulated fleets for SECONDS (60) on all cores; SEED=n CELLS=n repeats one and tells it
	@cargo run -q --profile sim -p volvox-tests --bin sim -- --cells $(CELLS) \
		$(if $(SEED),--seed $(SEED),--seconds $(SECONDS) --first $(FIRST)) $(ARGS)

schemathesis: setup ## Calls made from the OpenAPI document against a real coordinator; needs Python
	@cargo build -q -p volvox-coordinator
	packaging/schemathesis target/debug

# libFuzzer's instrumentation is behind an unstable flag; RUSTC_BOOTSTRAP lets stable take it.
fuzz: setup ## Run each target of fuzz/ for SECONDS (60)
	@if [ ! -f fuzz/Cargo.toml ]; then
		echo "fuzz: there is no fuzz/ yet" >&2
		exit 1
	fi
	cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	export RUSTC_BOOTSTRAP=1
	targets=$$(cargo fuzz list)
	for target in $$targets; do
		echo "--- fuzz $$target for $(SECONDS) s"
		cargo fuzz run "$$target" -- -max_total_time=$(SECONDS) -print_final_stats=1
	done

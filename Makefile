# The doors of the house. CI and people use the same ones; `make help` lists them.
#
#   make bench ONLY=board    one group of figures
#   make fuzz SECONDS=600    ten minutes for each fuzz target

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

ONLY ?=
SEED ?=
SECONDS ?= 60

.PHONY: help setup demo test check fmt clippy deny bench sim fuzz vm security schemathesis

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Quick and silent when nothing is missing. The C compiler is for SQLite, which is built from source.
setup: ## Install what a Debian-like machine with Rust is missing
	@if ! command -v cargo >/dev/null; then
		echo "setup: cargo is missing: install Rust (rustup), then try again" >&2
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

demo: setup ## Real containers on this machine; cleans up at the end, or on Ctrl-C. Needs root for them
	@cargo build -q --release -p volvox-coordinator -p volvox-agent
	packaging/demo target/release

# Table counts (of the tests with "table" or "page" in their names) and doctests come first, so that the
# closing lines of the main run end the log, followed only by what could not run. A test that must
# skip itself prints "SKIPPED <name>: <why>" on stderr and appends the same line to the file named
# in VOLVOX_SKIPPED.
test: setup ## Every test; says at the end which could not run, and why
	@skipped=$$(mktemp); tables=$$(mktemp); before=$$(mktemp)
	trap 'rm -f "$$skipped" "$$tables" "$$before"' EXIT
	export VOLVOX_SKIPPED="$$skipped"
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
	cargo run -q --profile test -p volvox-tests --bin leftovers -- take "$$before"

	if cargo nextest --version >/dev/null 2>&1; then
		cargo test --workspace --doc || failed="$$failed doctests"
		cargo nextest run --workspace --no-fail-fast || failed="$$failed tests"
	else
		cargo test --workspace --no-fail-fast || failed="$$failed tests"
	fi

	cargo run -q --profile test -p volvox-tests --bin leftovers -- compare "$$before" || failed="$$failed leftovers"
	if [ -s "$$skipped" ]; then
		echo "--- could not run here"
		sort -u "$$skipped"
	else
		echo "--- every test could run here"
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

# The agent's test programs, or those that ONLY names ("containers attacks").
vm: setup ## The container tests in a virtual machine with cgroup v2 alone; root, installs qemu
	@list=$$(mktemp)
	trap 'rm -f "$$list"' EXIT
	tests=$$(for name in $(if $(ONLY),$(ONLY),containers attacks limits net); do
		if [ -f "agent/tests/$$name.rs" ]; then echo "--test $$name"; fi
	done)
	cargo test -p volvox-agent $$tests --no-run 2>&1 | tee "$$list"
	packaging/vm/run $$(sed -n 's/^ *Executable .*(\(.*\))$$/\1/p' "$$list")

security: setup ## What a container of ours and one of runc have, side by side; needs root and runc
	@cargo test -q -p volvox-agent --test attacks compare:: -- --nocapture

sim: ## Whole fleets in virtual time, SEED=n to repeat one: does not exist yet
	@echo "sim: the simulator comes with issue 8; there is nothing to run yet" >&2
	exit 1

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

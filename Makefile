# The verbs of the project. Each is what CI runs, so that green here is green
# there. `make deps` is called by those that need it and installs what a plain
# Debian 12 with Go and make lacks; it needs root only when something is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build generate test test-bpf test-lab lint demo ci deps

GO ?= go
# Lab tests measure, and two packages at once on two cores measure each other:
# one package at a time. The limit is for a whole package.
TESTFLAGS ?= -race -count=1 -p 1 -timeout 10m
# What is missing must fail a test, never skip it.
export XLANE_REQUIRE ?= all
# sbin is not in an ordinary user's path, and nginx, ip and ethtool are there.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

# The packages whose tests ask for a tier: what a test needs is said once, in
# its call of testenv.
tier = $$(grep -rlE 'testenv\.($(1))\(' --include='*_test.go' . | xargs -r -n1 dirname | sort -u)

help: ## these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/xlane, one static binary; needs Go alone
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/xlane ./cmd/xlane

generate: deps ## compile the BPF programs again (clang 14)
	$(GO) generate ./...

test: deps lint ## every test, as root: pure, BPF, lab, documents
	@$(GO) build -race ./...
	@start=$$SECONDS; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	$(GO) test $(TESTFLAGS) ./... 2>&1 | tee "$$log" && rc=0 || rc=$$?; \
	count() { grep -cE "$$1" "$$log" || true; }; \
	echo "test: $$(count '^ok ') packages ok, $$(count '^FAIL	') failed, $$(count 'no test files') without tests, in $$((SECONDS - start)) s"; \
	exit $$rc

test-bpf: deps ## the packages with tests that load BPF programs
	$(GO) test $(TESTFLAGS) $(call tier,BPF)

test-lab: deps ## the packages with tests that make hosts and wires
	$(GO) test $(TESTFLAGS) $(call tier,Root|Lab)

# ST1000, ST1020-22 are archtest's (it knows which packages must say more), and
# ST1003 would rename constants that carry the kernel's own names.
lint: ## gofmt, vet, staticcheck, spelling; warnings are errors
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	@$(GO) vet ./...
	@$(GO) tool staticcheck -checks 'all,-ST1000,-ST1003,-ST1020,-ST1021,-ST1022' ./...
	@git ls-files -co --exclude-standard -- '*.go' '*.c' '*.h' '*.md' | xargs -r $(GO) tool misspell -error

demo: build ## xlane on one machine, measured, in under three minutes (as root)
	bin/xlane lab demo

# The committed objects must be what the committed C gives: whatever generate
# changes was stale. Compared before and after, so that it also works on a
# tree with uncommitted changes.
ci: deps ## what CI runs: generated files are fresh, then test
	@state() { git -c safe.directory='*' status --porcelain -uall; git -c safe.directory='*' diff; }; \
	before=$$(state); $(MAKE) --no-print-directory generate; after=$$(state); \
	if [ "$$before" != "$$after" ]; then \
		echo "make generate changed these; commit what it made:"; \
		diff <(echo "$$before") <(echo "$$after") | head -50 || true; exit 1; \
	fi
	@$(MAKE) --no-print-directory test

# command:package, and file:package for what is no command. Every package is
# installed only when what it is for is missing. policy-rc.d keeps Debian from
# starting the services that come with a package (nginx); it is taken away again.
NEEDED = gcc:gcc clang-14:clang-14 llvm-strip-14:llvm-14 ip:iproute2 ethtool:ethtool iperf3:iperf3 \
	nginx:nginx-light wrk:wrk curl:curl tcpdump:tcpdump ping:iputils-ping git:git \
	/usr/include/stdio.h:libc6-dev /usr/include/linux/bpf.h:linux-libc-dev /usr/include/bpf/bpf_helpers.h:libbpf-dev

deps:
	@missing=(); \
	for pair in $(NEEDED); do \
		what=$${pair%:*}; \
		case $$what in \
			/*) [ -e "$$what" ] || missing+=("$${pair#*:}");; \
			*) command -v "$$what" >/dev/null || missing+=("$${pair#*:}");; \
		esac; \
	done; \
	[ $${#missing[@]} -gt 0 ] || exit 0; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "make deps: missing here (Debian's package names): $${missing[*]}" >&2; \
		echo "install them, or run make deps as root on Debian" >&2; exit 1; \
	fi; \
	guard=/usr/sbin/policy-rc.d; \
	if [ ! -e "$$guard" ]; then \
		trap 'rm -f "$$guard"' EXIT; \
		printf '#!/bin/sh\nexit 101\n' >"$$guard"; chmod 755 "$$guard"; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	echo "make deps: installing $${missing[*]}" >&2; \
	apt-get update -qq </dev/null >&2; \
	apt-get install -qq -y --no-install-recommends "$${missing[@]}" </dev/null >&2; \
	case " $${missing[*]} " in *" nginx-light "*) \
		if [ -d /run/systemd/system ]; then systemctl disable --quiet nginx >&2 || true; fi;; \
	esac

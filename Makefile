# Sluice: how it is built and checked. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables
.DEFAULT_GOAL := help

# The tools are those that .ci/tools/go.mod and BUF_VERSION pin, put into the checkout; a linter's hundreds of dependencies
# stay out of the module that people import.
TOOLS := .cache/bin
TOOL_PINS := .ci/tools/go.mod .ci/tools/go.sum
GOLANGCI_LINT := $(TOOLS)/golangci-lint
GOTESTSUM := $(TOOLS)/gotestsum
# What users deploy, held against the types of Kubernetes, Istio and Compose: their dependencies stay out as well.
DEPLOY := .ci/deploy
BROWSER := .ci/browser
BENCHSTAT := $(TOOLS)/benchstat
BUF_VERSION := 1.75.0
BUF_HOME := .cache/buf-$(BUF_VERSION)
BUF := $(BUF_HOME)/node_modules/.bin/buf
AXE_VERSION := 4.14.1
AXE_HOME := .cache/axe-$(AXE_VERSION)
AXE := $(AXE_HOME)/node_modules/axe-core/axe.min.js

# The packages that a target looks at: make check-lint PACKAGES=./shared/...
PACKAGES ?= ./...
# How the filter is built for Envoy.
WASI := GOOS=wasip1 GOARCH=wasm
# Every worker holds the filter's code; 4.45 MB is what it may grow to. Of these, 0.56 MB are Go's regexp, most of it Unicode's
# tables, for what a policy may say of paths and headers.
WASM_MAX := 4450000
# Tests that start Envoy or load a machine and look at the clock: they run after the others, one package at a time, so that
# what they measure is not the compiler.
REAL_PACKAGES := sluice/testharness/(deploy|e2e|load|rig|wasmhost)(/|$$)
RACE_PACKAGES ?= ./controlsvc/...
TEST_FLAGS ?=
FUZZTIME ?= 30s
LONG_CHECKS ?= 2000
BENCH ?= .
BENCH_COUNT ?= 10
BENCH_PACKAGES ?= ./shared/... ./filter/... ./controlsvc/...
BENCH_OLD ?= .cache/bench/old.txt
BENCH_FLAGS ?=
SEEDS ?= 100000
SIM_FLAGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)$$/\1|\2/' | \
		while IFS='|' read -r target text; do printf '  %-16s %s\n' "$$target" "$$text"; done

# --- build

.PHONY: build
build: build-command build-filter ## bin/sluice, the service and the command; bin/sluice.wasm, the filter

.PHONY: build-command
build-command: # without C there is nothing to link to: it runs in an image that holds nothing else
	CGO_ENABLED=0 go build -trimpath -o bin/sluice ./controlsvc

.PHONY: build-filter
build-filter:
	$(WASI) go build -buildmode=c-shared -ldflags='-s -w' -trimpath -o bin/sluice.wasm ./filter
	@size=$$(wc -c < bin/sluice.wasm); echo "bin/sluice.wasm: $$size bytes, of at most $(WASM_MAX)"; test $$size -le $(WASM_MAX)

.PHONY: filter-tinygo
filter-tinygo: ## bin/sluice-tinygo.wasm, a smaller and slower filter; needs tinygo on the PATH
	@command -v tinygo >/dev/null || { echo 'make filter-tinygo: no tinygo on the PATH; `make build` needs only Go' >&2; exit 1; }
	# TinyGo before 0.35 has no reactor modules, and its command modules go on after _start; later ones do not.
	mode=-buildmode=c-shared; if tinygo version | grep -qE ' version 0\.([0-9]|[12][0-9]|3[0-4])\.'; then mode=; fi; \
		GOFLAGS=-modfile=filter/tinygo.mod tinygo build -target=wasip1 $$mode -scheduler=none -opt=2 -o bin/sluice-tinygo.wasm ./filter

# What Istio's WasmPlugin and Envoy Gateway load from oci://REGISTRY/NAME:TAG.
IMAGE ?=
IMAGE_VARIANT ?= compat

.PHONY: image-filter
image-filter: build-filter ## bin/sluice-filter, an OCI layout of the filter's image, and its digest; IMAGE=REGISTRY/NAME:TAG pushes it
	@go run -C $(DEPLOY) ./image -wasm $(CURDIR)/bin/sluice.wasm -layout $(CURDIR)/bin/sluice-filter -variant '$(IMAGE_VARIANT)' -push '$(IMAGE)'

# --- test

# make check vets what is built without here, and nobody debugs the tests' binaries: linking takes half as long.
QUICKLY := -vet=off -ldflags=-w

# One runner over both halves, so that its last line counts every test. It fails when either half does.
.PHONY: test
test: build $(GOTESTSUM) $(AXE) ## every test: unit, property, fuzz seeds, real Redis, real Envoy
	$(GOTESTSUM) --format pkgname-and-test-fails --raw-command -- $(SHELL) -c '\
		all="$$(go list ./...)"; status=0; \
		export SLUICE_WASM_CACHE="$$(mktemp -d)"; trap "rm -rf \"$$SLUICE_WASM_CACHE\"" EXIT; \
		go test $(QUICKLY) -json -timeout 20m $(TEST_FLAGS) $$(grep -vE "$(REAL_PACKAGES)" <<<"$$all") || status=1; \
		go test -C $(DEPLOY) $(QUICKLY) -json -timeout 20m $(TEST_FLAGS) ./... || status=1; \
		go test -C $(BROWSER) $(QUICKLY) -json -timeout 20m $(TEST_FLAGS) ./... || status=1; \
		real="$$(grep -E "$(REAL_PACKAGES)" <<<"$$all")"; \
		test -z "$$real" || go test $(QUICKLY) -json -timeout 20m -count=1 -p 1 $(TEST_FLAGS) $$real || status=1; \
		exit $$status'

.PHONY: test-long
test-long: build $(GOTESTSUM) ## the same tests for longer: SLUICE_LONG=1, LONG_CHECKS draws for every property
	SLUICE_LONG=1 RAPID_CHECKS=$(LONG_CHECKS) $(GOTESTSUM) --format pkgname-and-test-fails -- -timeout 60m -count=1 -p 1 $(TEST_FLAGS) ./...

.PHONY: test-race
test-race: $(GOTESTSUM) ## the race detector over the service, the only place with goroutines; needs a C compiler
	CGO_ENABLED=1 $(GOTESTSUM) --format pkgname-and-test-fails -- -race -short -timeout 20m $(TEST_FLAGS) $(RACE_PACKAGES)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	@found=0; for package in $$(go list $(PACKAGES)); do \
		listed="$$(go test -list '^Fuzz' "$$package")"; \
		for target in $$(grep '^Fuzz' <<<"$$listed" || true); do \
			found=1; echo "--- $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime '$(FUZZTIME)' "$$package"; \
		done; \
	done; test $$found = 1 || { echo 'make fuzz: no fuzz target in $(PACKAGES)' >&2; exit 1; }

.PHONY: bench
bench: bench-go bench-envoy bench-matching ## all benchmarks, with their tables written into docs/benchmarks.md

.PHONY: bench-envoy
bench-envoy: build ## Envoy with Sluice beside Envoy with its own filters and without any; BENCH_FLAGS, such as -rounds 3
	go build -o .cache/bin/bench ./testharness/load/bench
	.cache/bin/bench -write docs/benchmarks.md $(BENCH_FLAGS)

.PHONY: bench-rls
bench-rls: build-command ## what Envoy's own rate limit filter asks, beside an empty gRPC handler; BENCH_FLAGS, such as -rounds 3
	go build -o .cache/bin/bench ./testharness/load/bench
	.cache/bin/bench -ratelimit -write docs/benchmarks.md $(BENCH_FLAGS)

.PHONY: bench-matching
bench-matching: build ## what it costs in Envoy to find a request's limit among 1, 100 and 10,000, and its key
	go build -o .cache/bin/bench ./testharness/load/bench
	.cache/bin/bench -matching -write docs/benchmarks.md $(BENCH_FLAGS)

.PHONY: bench-memory
bench-memory: build ## Envoy's memory over a million requests of a hundred thousand keys
	go build -o .cache/bin/bench ./testharness/load/bench
	.cache/bin/bench -memory -write docs/benchmarks.md

.PHONY: bench-replay
bench-replay: build-command ## how fast access logs of a million lines are replayed, beside parsing alone, into docs/replay.md
	go build -o .cache/bin/bench-replay ./testharness/load/replay
	.cache/bin/bench-replay -write docs/replay.md

.PHONY: docs-algorithms
docs-algorithms: ## what the algorithms cost in Redis and what they admit, into docs/algorithms.md and its plot
	go run ./testharness/load/algorithms -write docs/algorithms.md -plot docs/algorithms.svg

.PHONY: bench-go
bench-go: $(BENCHSTAT) ## the Go benchmarks, BENCH_COUNT (10) runs; compared with BENCH_OLD where that file is
	mkdir -p .cache/bench
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCH_COUNT) $(BENCH_PACKAGES) | tee .cache/bench/new.txt
	$(BENCHSTAT) $(wildcard $(BENCH_OLD)) .cache/bench/new.txt | tee .cache/bench/table.txt
	go run ./testharness/load/bench -go .cache/bench/table.txt -write docs/benchmarks.md

.PHONY: sim
sim: ## workers, service and faults from SEEDS (100000) seeds, checked against the oracle; SIM_FLAGS goes to go test
	SIM_SEEDS='$(SEEDS)' go test -count=1 -v -timeout 0 $(SIM_FLAGS) ./testharness/sim/...

# --- check

.PHONY: check
check: check-format check-vet check-old-go check-lint check-generated check-tidy check-layout ## formatting, vet, linters, generated code, go.mod, imports

.PHONY: check-format
check-format: $(GOLANGCI_LINT) ## gofumpt
	$(GOLANGCI_LINT) fmt --diff
	cd $(DEPLOY) && $(CURDIR)/$(GOLANGCI_LINT) fmt --diff
	cd $(BROWSER) && $(CURDIR)/$(GOLANGCI_LINT) fmt --diff

.PHONY: format
format: $(GOLANGCI_LINT) ## rewrite the Go files as gofumpt has them
	$(GOLANGCI_LINT) fmt

# The filter is looked at twice, since one of its two adapters exists only when it is built for Envoy.
.PHONY: check-vet
check-vet:
	go vet $(PACKAGES)
	$(WASI) go vet ./filter ./filter/host

# What TinyGo compiles, by the oldest Go that it may bring: the SDK's adapter, with a module file of its own.
.PHONY: check-old-go
check-old-go: ## the filter by Go 1.23
	GOTOOLCHAIN=go1.23.12 go build -modfile=filter/tinygo.mod -o /dev/null ./filter

.PHONY: check-lint
check-lint: $(GOLANGCI_LINT) ## golangci-lint, as .golangci.yaml has it
	$(GOLANGCI_LINT) run $(PACKAGES)
	$(WASI) $(GOLANGCI_LINT) run ./filter/...
	cd $(DEPLOY) && $(CURDIR)/$(GOLANGCI_LINT) run ./...
	cd $(BROWSER) && $(CURDIR)/$(GOLANGCI_LINT) run ./...

.PHONY: check-tidy
check-tidy:
	go mod tidy -diff
	go mod tidy -C $(DEPLOY) -diff
	go mod tidy -C $(BROWSER) -diff

.PHONY: check-layout
check-layout: ## who may import whom, who may read a clock, what CI runs of the README
	go test ./testharness/layout

# --- generated code

PROTO := shared/proto
PROTO_TOOLS := $(BUF) $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc

.PHONY: generate
generate: $(PROTO_TOOLS) ## Go from shared/proto, and the JSON Schema of policies
	cd $(PROTO) && PATH="$(CURDIR)/$(TOOLS):$$PATH" $(CURDIR)/$(BUF) generate
	$(MAKE) generate-schema

SCHEMA := envoy/policies/policy.schema.json

.PHONY: generate-schema
generate-schema:
	mkdir -p .cache
	go run ./controlsvc schema > .cache/policy.schema.json
	mv .cache/policy.schema.json $(SCHEMA)

.PHONY: check-schema
check-schema:
	go run ./controlsvc schema | diff $(SCHEMA) - || { echo 'make check-schema: run `make generate-schema` and commit what it changes' >&2; exit 1; }

.PHONY: check-generated
check-generated: $(PROTO_TOOLS) check-schema ## the protocol's style, and that its Go and the JSON Schema are fresh
	cd $(PROTO) && $(CURDIR)/$(BUF) lint && $(CURDIR)/$(BUF) format --diff --exit-code
	rm -rf .cache/generated
	cd $(PROTO) && PATH="$(CURDIR)/$(TOOLS):$$PATH" $(CURDIR)/$(BUF) generate -o $(CURDIR)/.cache/generated
	diff -r --exclude='*.proto' --exclude='*.yaml' $(PROTO) .cache/generated || \
		{ echo 'make check-generated: run `make generate` and commit what it changes' >&2; exit 1; }

# --- run

.PHONY: demo
demo: build ## two Envoys, one limit, live; DEMO_SECONDS=15 ends by itself, DEMO_OUTAGE=5 stops the service meanwhile, REDIS_URL uses that Redis
	bin/sluice demo

# --- the rest

.PHONY: tools
tools: $(GOLANGCI_LINT) $(GOTESTSUM) $(BENCHSTAT) $(PROTO_TOOLS) ## build and fetch the pinned tools, which the others do by themselves

$(GOLANGCI_LINT): TOOL_PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(GOTESTSUM): TOOL_PACKAGE := gotest.tools/gotestsum
$(BENCHSTAT): TOOL_PACKAGE := golang.org/x/perf/cmd/benchstat
$(TOOLS)/protoc-gen-go: TOOL_PACKAGE := google.golang.org/protobuf/cmd/protoc-gen-go
$(TOOLS)/protoc-gen-go-grpc: TOOL_PACKAGE := google.golang.org/grpc/cmd/protoc-gen-go-grpc

$(GOLANGCI_LINT) $(GOTESTSUM) $(BENCHSTAT) $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc: $(TOOL_PINS)
	GOOS= GOARCH= go build -C .ci/tools -o $(CURDIR)/$@ $(TOOL_PACKAGE)
	@touch $@

$(AXE):
	@command -v npm >/dev/null || { echo 'make: axe-core comes from npm, and there is no npm on the PATH' >&2; exit 1; }
	mkdir -p $(AXE_HOME)
	npm install --prefix $(AXE_HOME) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund axe-core@$(AXE_VERSION)

# buf's own install script only makes its start faster, and is not run.
$(BUF):
	@command -v npm >/dev/null || { echo 'make: buf comes from npm, and there is no npm on the PATH' >&2; exit 1; }
	mkdir -p $(BUF_HOME)
	npm install --prefix $(BUF_HOME) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund @bufbuild/buf@$(BUF_VERSION)
	@touch $@

.PHONY: clean
clean: ## remove what was built: bin, and the tools in .cache
	rm -rf bin .cache

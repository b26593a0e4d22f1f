# One command checks a change: make. No root, no network once the modules are there, no accelerator, no virtual machine.
# One command checks everything: make test, as root. make help lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := check
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Go may be outside the PATH of root and of a CI runner.
GO := $(or $(shell command -v go 2>/dev/null),$(wildcard /usr/local/go/bin/go),$(lastword $(wildcard /usr/lib/go-*/bin/go)))
ifeq ($(GO),)
$(error cannot find go: install Go 1.26 or newer)
endif
export PATH := $(dir $(GO)):$(PATH)

# What is slow to build is kept outside the tree, where the test bed looks too.
export HOME ?= /root
export ACCELD_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/acceld
export GOLANGCI_LINT_CACHE := $(ACCELD_CACHE)/golangci-lint
TOOLS := $(ACCELD_CACHE)/tools/$(shell cat tools/go.sum <($(GO) version) | sha256sum | cut -c1-16)

# One set of flags for all that is compiled, here and by the test bed, so that the compiler does each package once: without
# debug information, which programs that are stripped lose anyway and which is a tenth of the compiler's work. The race
# detector has another and needs a C compiler; without one the tests run without it.
# go.mod names the oldest patch release of Go without known vulnerabilities; an older Go than that fetches it.
export GOTOOLCHAIN := auto
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false)
RACE := $(if $(shell command -v gcc 2>/dev/null),-race)
# Stamp the commit into programs where there is one to stamp, whatever GOFLAGS says.
REVISION = $(shell git rev-parse --verify -q HEAD 2>/dev/null)
VERSION = $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)
STAMP = -buildvcs=$(if $(REVISION),true,false)
# The time of everything in an image or a package is the commit's, so that a commit gives the same bytes.
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),0)
ARCHES ?= amd64 arm64
PLUGINS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64
BIN ?= bin
HERE = $(shell $(GO) env GOARCH)

# Checked by targets of their own, before the long ones.
RULES := %/test/house %/test/docs %/test/scripts %/test/purge
# Modules of their own with tests, so that what they need is not what the agent needs. They are built with the flags with
# which the test bed builds Kubernetes, so that the compiler does that once.
NESTED := test/kubelet packaging/image packaging/packages packaging/release packaging/site test/chart
# The same tests of a kubelet with the one before.
KUBELET136 := -modfile=go136.mod -tags=kubelet136

##@ Every day

.PHONY: check
check: format modules house docs lint scripts unit ## What make alone does: format, house, docs, lint, scripts, unit tests

.PHONY: format
format: $(TOOLS) ## Fail for files that gofumpt would change
	@unformatted=$$($(TOOLS)/gofumpt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt mends it):"; echo "$$unformatted"; exit 1; fi

.PHONY: fmt
fmt: $(TOOLS) ## Format every Go file
	$(TOOLS)/gofumpt -w .

.PHONY: modules
modules: ## Fail when a change of go.mod asks for one in a module below
	@for module in $(NESTED); do (cd $$module && $(GO) list -deps -test ./... >/dev/null) || { echo "mend it: cd $$module && $(GO) list -mod=mod -deps -test ./..."; exit 1; }; done
	@cd cmd/acceld-nvml && CGO_ENABLED=1 $(GO) list -deps ./... >/dev/null || { echo "mend it: cd cmd/acceld-nvml && go get ."; exit 1; }
	@cd cmd/acceld-prove && $(GO) list -deps ./... >/dev/null || { echo "mend it: cd cmd/acceld-prove && go get ."; exit 1; }
	@cd test/kubelet && $(GO) list $(KUBELET136) -deps -test . >/dev/null || { echo "mend it: cd test/kubelet && $(GO) list $(KUBELET136) -mod=mod -deps -test ."; exit 1; }

.PHONY: house
house: ## The rules of STYLE.md
	$(GO) test ./test/house

.PHONY: docs
docs: ## Links, snippets, and generated pages against the code
	$(GO) test ./test/docs

.PHONY: lint
lint: $(TOOLS) ## golangci-lint, with go vet in it
	$(TOOLS)/golangci-lint run --allow-parallel-runners ./...
	cd cmd/acceld-nvml && CGO_ENABLED=1 $(TOOLS)/golangci-lint run --allow-parallel-runners ./...
	cd cmd/acceld-prove && $(TOOLS)/golangci-lint run --allow-parallel-runners ./...

# Without the race detector: the program starts hundreds of times, and with it takes six times as long to.
.PHONY: scripts
scripts: ## The command line, as test/scripts/testdata describes it, and a purge after kills
	$(GO) test -short ./test/scripts ./test/purge

.PHONY: unit
unit: ## Unit tests, with the race detector; the rounds of random kills are few here and many in make test
	CGO_ENABLED=$(if $(RACE),1,0) $(GO) test -short $(RACE) $(filter-out $(RULES),$(shell $(GO) list ./...))

.PHONY: generate
generate: ## Write the generated pages of docs
	$(GO) run ./test/docs/gen

# Hugo takes minutes to build; the compiler keeps what it has built.
.PHONY: site
site: ## The pages of docs as a site with a search, in bin/site
	cd packaging/site && HUGO_PARAMS_VERSION='$(VERSION)' $(GO) tool hugo --destination $(CURDIR)/bin/site --cleanDestinationDir --noBuildLock --panicOnWarning

.PHONY: demo
demo: ## See it work: a bare machine's accelerators compute in a container, then on a cluster; CLUSTER=0 ends after the first half
	$(GO) run ./test/demo $(if $(filter 0,$(CLUSTER)),-cluster=false)

##@ Programs

# Without the pages on which grpc shows its calls (golang.org/x/net/trace, with html/template): nobody serves them. acceld-nvml loads
# a library of the host's, so it is the one that needs a C compiler.
NVML = CGO_ENABLED=1 CGO_CFLAGS='-O2 -g -Wno-deprecated-declarations' $(GO) build -C cmd/acceld-nvml $(STAMP) -buildmode=pie -ldflags='-s -w'
# acceld-prove loads one too, without a C compiler (purego), and needs the host's C library.
PROVE = $(GO) build -C cmd/acceld-prove $(STAMP) -ldflags='-s -w'
PROGRAMS = $(GO) build $(STAMP) -tags=grpcnotrace -ldflags='-s -w'

.PHONY: build
build: ## Static programs in bin, acceld-prove, and acceld-nvml where there is a C compiler
	$(PROGRAMS) -o bin/ ./cmd/...
	$(PROVE) -o $(CURDIR)/bin/ .
	$(if $(RACE),$(NVML) -o $(CURDIR)/bin/ .,@rm -f bin/acceld-nvml; echo "no C compiler: without acceld-nvml")

# Every node loads the first two, and the hook runs at each start of a container; the controller is in the cluster once or twice,
# and has client-go's clientset. In bytes; they had 33.3, 2.0 and 32.0 MB when this was set. text/template, which fills what
# definitions leave open, is 4.7 MB of the agent: it calls methods by name, so that the linker keeps every method of every type.
.PHONY: size
size: build ## Fail for programs that grew beyond their budget
	@stat -c '%n %s' bin/acceld bin/acceld-hook bin/acceld-controller | \
	awk '{ budget = $$1 ~ /hook$$/ ? 3000000 : 45000000 } \
		$$2 > budget { print $$1 " has " $$2 " bytes, at most " budget; over = 1 } END { exit over }'

.PHONY: man
man: ## Manual pages and the completions of shells into bin/share
	$(GO) run ./packaging/man -out bin/share -version '$(VERSION)'

.PHONY: install
install: ## Programs, units, the kernel's hooks, manual and completions below DESTDIR, after make build man
	install -D -t $(DESTDIR)/usr/bin $(BIN)/acceld $(BIN)/acceld-hook $(BIN)/acceld-prove
	if [ -e $(BIN)/acceld-nvml ]; then install -t $(DESTDIR)/usr/bin $(BIN)/acceld-nvml; fi
	install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system systemd/*.service systemd/*.socket
	install -D packaging/kernel/acceld-preflight $(DESTDIR)/etc/kernel/postinst.d/zz-acceld
	install -D packaging/kernel/acceld-preflight $(DESTDIR)/etc/kernel/header_postinst.d/zz-acceld
	install -D packaging/kernel/acceld-preflight $(DESTDIR)/usr/lib/kernel/install.d/95-acceld.install
	if [ -d bin/share ]; then cd bin/share && find . -type f ! -name 'acceld-controller*' -exec install -D -m 644 {} $(abspath $(or $(DESTDIR),/))/usr/share/{} \; ; fi

# What images and packages are made of: the programs for each processor, in a directory of its own. Compilers for another
# processor have the names that distributions give them (Debian's gcc-aarch64-linux-gnu with libc6-dev-arm64-cross).
.PHONY: programs
programs: ## Programs for ARCHES (amd64 arm64) in bin/<arch>; acceld-nvml where there is a C compiler for the processor
	@for arch in $(ARCHES); do \
		cc=gcc; case $$arch in $(HERE)) ;; amd64) cc=x86_64-linux-gnu-gcc ;; arm64) cc=aarch64-linux-gnu-gcc ;; esac; \
		echo "for $$arch"; \
		GOARCH=$$arch $(PROGRAMS) -o bin/$$arch/ ./cmd/... || exit; \
		GOARCH=$$arch $(PROVE) -o $(CURDIR)/bin/$$arch/ . || exit; \
		rm -f bin/$$arch/acceld-nvml; \
		if command -v $$cc >/dev/null; then GOARCH=$$arch CC=$$cc $(NVML) -o $(CURDIR)/bin/$$arch/ . || exit; \
		else echo "no C compiler $$cc: without acceld-nvml for $$arch"; fi; \
	done

.PHONY: image
image: programs ## The agent's image as an OCI layout in dist; PUSH=registry.example.com/acceld:v1 pushes it instead, CONTROLLER=1 makes the controller's
	cd packaging/image && SOURCE_DATE_EPOCH=$(EPOCH) $(GO) run . $(ARCHES:%=-bin $(CURDIR)/bin/%) -sbom -version '$(VERSION)' -revision '$(REVISION)' \
		$(if $(CONTROLLER),-controller -name acceld-controller:dev) \
		$(if $(PUSH),-push '$(PUSH)',-out $(CURDIR)/dist/$(if $(CONTROLLER),controller,image)$(if $(TAR),.tar))

.PHONY: packages
packages: programs $(if $(wildcard packaging/man),man) ## deb and rpm of the agent in dist, for ARCHES
	cd packaging/packages && for arch in $(ARCHES); do SOURCE_DATE_EPOCH=$(EPOCH) $(GO) run . -bin $(CURDIR)/bin/$$arch -out $(CURDIR)/dist -version '$(VERSION)' || exit; done

# The version is the one that the compiler stamped into the programs: a tag, or the time and hash of a commit. Images, chart
# and packages have the same.
RELEASE = $(CURDIR)/dist/release
.PHONY: release
release: programs man ## All that is published of a commit, in dist/release; KEY=file signs, URL= is where it will be, PUSH=registry.example.com/acceld pushes
	rm -rf $(RELEASE) bin/tree bin/plugin
	@for to in $(PLUGINS); do \
		GOOS=$${to%-*} GOARCH=$${to#*-} $(PROGRAMS) -o bin/plugin/$$to/ ./cmd/kubectl-acceld || exit; done
	@for arch in $(ARCHES); do $(MAKE) -s install BIN=bin/$$arch DESTDIR=bin/tree/$$arch; done
	@export SOURCE_DATE_EPOCH=$(EPOCH); \
	version=$$(cd packaging/release && $(GO) run . -version-of $(CURDIR)/bin/$(firstword $(ARCHES))/acceld) && \
	for image in acceld acceld-controller; do \
		set -- $(ARCHES:%=-bin $(CURDIR)/bin/%) -sbom -version $$version -revision '$(REVISION)' \
			-controller=$$(test $$image = acceld && echo false || echo true); \
		(cd packaging/image && $(GO) run . "$$@" -name $$image:$$version -out $(RELEASE)/$$image-image-$$version.tar \
			$(if $(PUSH),&& $(GO) run . "$$@" -push '$(PUSH)'/$$image:$$version)) || exit; \
	done && \
	for arch in $(ARCHES); do (cd packaging/packages && $(GO) run . -bin $(CURDIR)/bin/$$arch -out $(RELEASE) -version $$version) || exit; done && \
	cd packaging/release && $(GO) run . $(ARCHES:%=-tree $(CURDIR)/bin/tree/%) $(PLUGINS:%=-plugin $(CURDIR)/bin/plugin/%) -out $(RELEASE) -version $$version -revision '$(REVISION)' \
		-url '$(URL)' -key '$(if $(KEY),$(abspath $(KEY)))' $(if $(PUSH),-push '$(PUSH)/charts')

##@ Everything

# What the tests use beside what the test bed installs by itself: a kernel's headers, lspci to be measured against, and what judges
# packages.
.PHONY: test-packages
test-packages:
	@missing=; for p in linux-headers-amd64 pciutils lintian rpm; do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; fi

# All of them at once are for the suite, which keeps their output in files and ends with a table.
BEDTESTS = $(if $(RUN),ACCELD_TESTBED=1 $(GO) test -count=1 -v -timeout=90m -run='$(RUN)' ./test/$@,$(GO) run ./test/suite -run '^$@/')

.PHONY: e2e
e2e: test-packages ## Scenarios on real parts, as root, all of them or with their output those of RUN=TestBareMetal
	$(BEDTESTS)

.PHONY: faults
faults: test-packages ## Fault injections on real parts, as root, all of them or with their output those of RUN=Test14
	$(BEDTESTS)

.PHONY: power
power: ## Power cuts at any moment, on a disk that loses its cache, as root; CUTS=200, RUN=TestPowerCuts$$ leaves the host's out
	ACCELD_TESTBED=1 $(GO) test -count=1 -v -timeout=60m -run='$(or $(RUN),.)' ./test/power -cuts=$(or $(CUTS),200)

.PHONY: kubelets
kubelets: ## The real kubelets 1.37.1 and 1.36.3 as judges, as root; RESTARTS=1000 of each kind instead of 20, RUN=Claim picks some
	cd test/kubelet && ACCELD_TESTBED=1 $(GO) test -vet=off -count=1 -v -timeout=120m -run='$(or $(RUN),.)' . -restarts=$(or $(RESTARTS),20)
	cd test/kubelet && ACCELD_TESTBED=1 $(GO) test -vet=off -count=1 -v -timeout=120m $(KUBELET136) -run='$(or $(RUN),.)' . -restarts=$(or $(RESTARTS),20)

.PHONY: figures
figures: ## Everything that is measured beside a peer, as root, on the test bed where it needs one; RUN=TestBesideNodeExporter picks one
	ACCELD_TESTBED=1 ACCELD_BENCH=1 $(GO) test -count=1 -p=1 -v -timeout=30m -run='$(or $(RUN),.)' ./test/bench/...

# What takes minutes is dealt into parts (test/suite), because all of it does not fit into one run of CI.
.PHONY: test
test: test-packages check vuln size ## Everything, as root: make, and a part of all that needs minutes or the test bed; the commit chooses it, or PART=2/16, PART=all
	$(GO) run ./test/suite $(if $(PART),-part '$(PART)') $(if $(RUN),-run '$(RUN)')

.PHONY: suite
suite: test-packages ## Of make test only what needs minutes or the test bed, as root; PART=2/16, PART=all or RUN=TestDRA picks, LIST=1 only lists
	$(GO) run ./test/suite $(if $(PART),-part '$(PART)') $(if $(RUN),-run '$(RUN)') $(if $(LIST),-list)

# What make test judges on this machine's processor alone: the programs of the other one, at work under an emulator of its
# instructions, with the kernel of this machine. Tests of how soon something is known are not for an emulator.
.PHONY: test-arm64
test-arm64: ## The programs for arm64, emulated: they start, and acceld-nvml with a library that plays GPUs; as root
	@missing=; for p in gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static; do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; fi
	$(MAKE) programs ARCHES=arm64
	qemu-aarch64-static bin/arm64/acceld version
	qemu-aarch64-static bin/arm64/acceld-controller --help >/dev/null
	qemu-aarch64-static -L /usr/aarch64-linux-gnu bin/arm64/acceld-prove -api cuda | grep -q noLibrary
	ACCELD_NVML_ARCH=arm64 $(GO) test -count=1 -v -run='^Test(Machine|Labels|Xid|Lost.*|Instances|Mismatch|Absent)$$' ./test/nvml

.PHONY: test-nvidia-source
test-nvidia-source: ## The true broken kernel upgrade: all of NVIDIA's source for two kernels, beside plain make, as root; takes long
	ACCELD_TESTBED=1 ACCELD_BENCH=1 $(GO) test -count=1 -v -timeout=180m -run='^TestWholeSource$$' ./test/nvidia

.PHONY: on-gpu
on-gpu: build ## Try acceld on this machine's GPUs, as root: a report without serial numbers in on-gpu.md; KIND=amd-gpu tries another kind, DRIVER='{version: …}' gets it a driver
	$(GO) run ./test/ongpu -kind '$(or $(KIND),nvidia-gpu)' -driver '$(DRIVER)' -bin bin -out on-gpu.md

# The browser has 300 MB with what it needs, so it is not among the packages of make test. axe-core, which judges the pages,
# comes by npm, where that is installed.
AXE = bin/axe/node_modules/axe-core/axe.min.js
.PHONY: screenshots
screenshots: ## The pages for people, the site and a terminal in a real browser, as pictures in bin/screenshots; KEEP=1 renews those of the README, as root
	command -v chromium >/dev/null || { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; }
	rm -rf bin/axe && mkdir -p bin
	if command -v npm >/dev/null; then cp -r test/screens/axe bin/axe && cd bin/axe && npm ci --ignore-scripts --no-audit --no-fund; \
	else echo "npm is not installed: axe-core does not judge the pages"; fi
	cd packaging/site && $(GO) test -count=1 -vet=off -v ./...
	ACCELD_AXE=$$(ls $(CURDIR)/$(AXE) 2>/dev/null) ACCELD_SCREENS=$(CURDIR)/bin/screenshots $(GO) test -count=1 -v ./test/screens
	$(if $(KEEP),install -m 644 -t docs/pictures bin/screenshots/status.webp bin/screenshots/fleet.webp bin/screenshots/terminal.svg)

# All of them take about an hour on two processors. After a change of a few tests, pick with RUN.
.PHONY: mutants
mutants: ## Harmful changes of the code, one by one: the unit tests must notice; RUN=driver/ picks by id or file, NEW=1 those never run, WRITE=1 records results and score
	$(GO) run ./test/mutants -run='$(RUN)' $(if $(NEW),-new) $(if $(WRITE),-write)

.PHONY: fuzz
fuzz: ## Every fuzz target for a while, what it found kept as test data; T=5m for each, RUN=detect picks by package or name
	$(GO) run ./test/fuzz -time='$(or $(T),10s)' -run='$(RUN)'

.PHONY: bench
bench: $(TOOLS) ## Go benchmarks into bin/bench.txt; OLD=file compares with an earlier one
	@mkdir -p bin
	$(GO) test -run='^$$' -bench=. -benchmem -count=6 ./... | tee bin/bench.txt
	$(TOOLS)/benchstat $(OLD) bin/bench.txt

# Where no database of vulnerabilities can be had, or only an old one, that is said, and is no failure; a finding is.
.PHONY: vuln
vuln: $(TOOLS) ## Known vulnerabilities in what the programs call, by the newest database that can be had
	@$(GO) run ./test/cmd/vuln -govulncheck $(TOOLS)/govulncheck $(if $(RACE),-C cmd/acceld-nvml -C cmd/acceld-prove) ./cmd/...

##@ Housekeeping

# The name holds the hash of go.sum, so what is there is right, whatever its age.
$(TOOLS):
	@echo "building golangci-lint, gofumpt, govulncheck and benchstat into $@ (once)"
	@mkdir -p $@.$$PPID && cd tools && $(GO) build -buildvcs=false -o $@.$$PPID/ tool
	@mv -T $@.$$PPID $@ || rm -rf $@.$$PPID

.PHONY: clean
clean: ## Remove what make built in the tree; the cache outside stays
	rm -rf bin dist

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

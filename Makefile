# SPDX-License-Identifier: Apache-2.0
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  = -s -w -X github.com/trunkline/trunkline/cmd/internal/cli.Version=$(VERSION)

.PHONY: build generate demo test bench vmtest vmbench vmtest-deps clean deps

build: ## one static binary at bin/trunkline
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/trunkline ./cmd/trunkline

generate: ## BPF objects, their Go bindings, the reasons' header and documentation (needs clang, llvm-strip, libbpf headers)
	$(GO) generate ./...

demo: build ## two sites, an emulated WAN, one file three times (root)
	bin/trunkline demo $(ARGS)

test: build ## everything, on this kernel, in namespaces and cgroups of its own (root)
	$(GO) test -count=1 -p 1 -timeout 25m ./...

ifdef ARGS
bench: build ## the codec's speed and ratio; or an experiment, as in make bench ARGS="overhead --quick" (root)
	bin/trunkline bench $(ARGS)
else
bench:
	$(GO) test -run '^$$' -bench . -benchtime 2s ./proxy/dedup/...
endif

vmtest: build ## the same tests in virtual machines, one per kernel; KERNEL=6.12 or KERNEL=/path/to/bzImage for one (root)
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/vmtest ./vmtest/run
	bin/vmtest $(if $(KERNEL),--kernel $(KERNEL),--doc) $(ARGS)

vmbench: build ## a bench in a virtual machine under exact time: BENCH="overhead --quick" OUT=DIR [KERNEL=6.12] (root)
	@test -n "$(BENCH)" && test -n "$(OUT)" || { echo 'vmbench: say which bench and where to: make vmbench BENCH="overhead --quick" OUT=DIR' >&2; exit 2; }
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/vmtest ./vmtest/run
	bin/vmtest bench $(if $(KERNEL),--kernel $(KERNEL)) --out $(OUT) -- $(BENCH)

vmtest-deps: ## what virtual machines need, on Debian and Ubuntu
	sh packaging/vmtest-deps.sh

deps: ## what generating and testing need beyond Go, on Debian and Ubuntu
	sh packaging/deps.sh

clean:
	rm -rf bin

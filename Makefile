# gpt2scope. `make help` lists the targets.

PROMPT ?= ROMEO:
ARGS   ?=
TEXT   ?=
PREFIX ?= /usr/local
FUZZTIME ?= 1m

# Through the environment, where neither make nor a shell interprets them.
export INFER_PROMPT := $(value PROMPT)
export INFER_TEXT := $(value TEXT)
export INFER_ARGS := $(value ARGS)

# go-nvml declares functions that NVIDIA has since deprecated: hundreds of lines of
# warnings that say nothing about this code. (Once, since other flags compile all C again, also in a make that make runs.)
export CGO_CFLAGS := $(filter-out -Wno-deprecated-declarations,$(or $(CGO_CFLAGS),-O2 -g)) -Wno-deprecated-declarations

# What 'infer version' says: the commit, -dirty if files differ from it, and the date.
STAMP = $(shell c=$$(git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null) && echo "-X gpt2scope/cmd/infer/cli.Commit=$$c ")-X gpt2scope/cmd/infer/cli.Built=$(shell \
	s=$${SOURCE_DATE_EPOCH:-$$(date +%s)} f=+%Y-%m-%dT%H:%M:%SZ; date -u -d "@$$s" $$f 2>/dev/null || date -u -r "$$s" $$f)

# 'make lint' vets. Without data for debuggers linking takes half the time.
GOTEST = go test -vet=off -ldflags='-s -w'

.DEFAULT_GOAL := run
.PHONY: help run build install dist nvtx cupti cuda cuda-check profile test docs-check test-browser test-gpu test-gpu-binaries sanitize lint chromium pictures bench bench-peers parity golden notebook fuzz clean need

run: build  ## build, and write Shakespeare: make run PROMPT="JULIET:" ARGS="--layers all -n 100"
	@case " $$INFER_ARGS " in *" --json"*|*" -i"*) ;; *) printf '%s' "$$INFER_PROMPT" ;; esac
	@bin/infer -p "$$INFER_PROMPT" $(ARGS)
	@test -n "$$INFER_ARGS" || printf '%s\n' '' 'What to type next:' \
		'  bin/infer tour                                  ten screens: what the program does, each command live' \
		'  bin/infer learn                                 claims about GPU profiling, tested on this machine' \
		'  bin/infer -p "ROMEO:" --profile                 where the time of a text goes' \
		'  bin/infer trace report sample:bad -o page.html  the recording of a GPU, as a page for a browser' >&2

test: need  ## run all tests; TEXT=FILE adds the shipped model's quality on tiny Shakespeare
	GPT2SCOPE_TEXT="$${INFER_TEXT:+$$(realpath -- "$$INFER_TEXT")}" $(GOTEST) -skip '^TestDocs' -timeout 30m ./...

docs-check: need  ## check that pages are what samples, code and commands give
	$(GOTEST) -run '^TestDocs' $$(git grep -lE '^func TestDocs' -- '*_test.go' | sed -E 's,^([^/]*_test.go)$$,./\1,; s,/?[^/]*$$,,; s,^[^.],./&,' | sort -u)

test-browser: need chromium  ## test the HTML pages in Chromium
	GPT2SCOPE_REQUIRE_CHROMIUM=1 $(GOTEST) $$(git grep -l 'chromium\.Open' -- '*_test.go' | sed -E 's,/[^/]*$$,,; s,^,./,' | sort -u)

# A copy, as any installed program is: the page cache holds what a linker wrote in pieces of up to 2 MiB, of which Linux 6.18 maps each
# whole, so that a run right after a build would take 14 to 19 MiB more than ever after.
build: need  ## build bin/infer
	@test -e build/infer || echo "building bin/infer: the first time Go gets modules and compiles Go and C, which takes about two minutes"
	@go build -ldflags "$(STAMP)" -o build/infer ./cmd/infer
	@mkdir -p bin
	@install build/infer bin/infer

# What is installed, and from where: dist has programs of other architectures.
BINARY ?= build/infer
LIBS   ?= $(wildcard lib/*.so)

install: build  ## install the program, libraries that are built, completions and manual pages: make install PREFIX=/usr/local
	install -D $(BINARY) "$(DESTDIR)$(PREFIX)/bin/infer"
	@for lib in $(LIBS); do install -D "$$lib" "$(DESTDIR)$(PREFIX)/$$lib" || exit 1; done
	@cd "$(DESTDIR)$(PREFIX)" && mkdir -p share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d
	@bin/infer completion bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/infer"
	@bin/infer completion zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_infer"
	@bin/infer completion fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/infer.fish"
	@bin/infer man "$(DESTDIR)$(PREFIX)/share/man/man1"

# A program without a CUDA library beside it is static: it runs on any Linux, whatever its C library.
dist: build  ## write tar files of what make install installs, for amd64 and arm64, with checksums, into build/dist
	@rm -rf build/dist && mkdir -p build/dist
	@version=$$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || echo source); host=$$(go env GOARCH); \
	for arch in amd64 arm64; do \
		cc=$$(go env CC) libs="$(LIBS)"; \
		test $$arch = $$host || { libs=; test $$arch = arm64 && cc=aarch64-linux-gnu-gcc || cc=x86_64-linux-gnu-gcc; }; \
		command -v $$cc > /dev/null || { echo "without linux/$$arch: there is no $$cc (Debian: apt-get install gcc-aarch64-linux-gnu)"; continue; }; \
		name=infer-$$version-linux-$$arch static=; \
		case "$$libs" in *_cuda.so*) ;; *) libs= static="-linkmode external -extldflags=-static";; esac; \
		GOOS=linux GOARCH=$$arch CGO_ENABLED=1 CC=$$cc go build -ldflags "-s -w $$static $(STAMP)" -o build/dist/infer-$$arch ./cmd/infer && \
		$(MAKE) -s install BINARY=build/dist/infer-$$arch LIBS="$$libs" DESTDIR="$(CURDIR)/build/dist/" PREFIX=$$name && \
		cp LICENSE README.md build/dist/$$name/ && \
		tar -C build/dist --sort=name --owner=0 --group=0 -czf build/dist/$$name.tar.gz $$name || exit 1; \
		if test -n "$$static"; then echo "build/dist/$$name.tar.gz: static, for the CPU; make cuda built no library for $$arch"; else \
			echo "build/dist/$$name.tar.gz: with the CUDA library; needs glibc $$(grep -ao 'GLIBC_2\.[0-9]*' build/dist/infer-$$arch | sort -uV | tail -1 | cut -d_ -f2) or later"; fi; \
		rm -rf build/dist/infer-$$arch build/dist/$$name; \
	done
	@cd build/dist && sha256sum *.tar.gz | tee SHA256SUMS

nvtx:  ## build lib/libgpt2scope_nvtx.so, which shows the stages to Nsight Systems
	csrc/build-nvtx.sh

cupti:  ## build lib/libgpt2scope_cupti.so, which records kernels, API calls and graph nodes through CUPTI
	csrc/build-cupti.sh

profile: build nvtx  ## capture a run with Nsight Systems: make profile ARGS="--layers all"
	traces/profile.sh -p "$$INFER_PROMPT" $(ARGS)

cuda:  ## build the CUDA library for every GPU architecture (ARCHS="90a" limits it), and what make cupti builds
	@csrc/build.sh
	@csrc/build-cupti.sh

cuda-check:  ## compile each kernel for three architectures, a part of its widths; warnings and spills are errors
	@csrc/build.sh --check

test-gpu: cuda build nvtx  ## run the tests that need a GPU, and the checks with Nsight Systems and Nsight Compute
	GPT2SCOPE_REQUIRE_GPU=1 GPT2SCOPE_CUDA_LIB="$(CURDIR)/lib/libgpt2scope_cuda.so" go test -count=1 ./cuda/... ./nvtx
	GPT2SCOPE_CUDA_LIB="$(CURDIR)/lib/libgpt2scope_cuda.so" traces/check-gpu.sh

sanitize: cuda build  ## run a prefill and decode steps under compute-sanitizer
	GPT2SCOPE_CUDA_LIB="$(CURDIR)/lib/libgpt2scope_cuda.so" cuda/testdata/sanitize.sh

test-gpu-binaries: need cuda nvtx  ## build the tests of make test-gpu for a machine without Go: build/gpu/run.sh runs them there
	rm -rf build/gpu
	mkdir -p build/gpu
	for p in $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./cuda ./cuda/... ./nvtx); do \
		go test -c -tags external_weights -ldflags "-s -w" -o "build/gpu/$$(basename $$p).test" $$p || exit 1; \
		echo "$$(basename $$p).test $${p#gpt2scope/}" >> build/gpu/tests; done
	go build -tags external_weights -ldflags "-s -w $(STAMP)" -o bin/infer ./cmd/infer
	cp cuda/testdata/run-gpu-tests.sh build/gpu/run.sh

lint: need  ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go vet -tags external_weights ./cmd/infer
	go tool staticcheck ./...

chromium:  ## install Debian's Chromium, which tests the page of 'infer trace report'
	@command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; }

pictures: need  ## render the pictures of the report into docs/images with Chromium
	mkdir -p docs/images
	GPT2SCOPE_REQUIRE_CHROMIUM=1 GPT2SCOPE_PICTURES="$(CURDIR)/docs/images" go test -count=1 ./traces/report -run '^TestPictures$$'

bench: need  ## run the Go benchmarks of CPU kernels, decode and prefill
	go test ./cpu -run '^$$' -bench . -benchtime 1s

bench-peers: need  ## measure against PyTorch, ONNX Runtime, OpenVINO, llama.cpp and CTranslate2, installed into .venv; writes build/DATE-bench-peers.txt
	bench/run.sh $(ARGS)

parity: need  ## compare live with Hugging Face transformers, which it installs into .venv
	parity/run.sh $${INFER_TEXT:+--text "$$INFER_TEXT"} $(ARGS)

notebook: need  ## run examples/notebook, from samples to a decision tree, with Jupyter, which it installs into .venv
	examples/notebook/run.sh

fuzz: need  ## fuzz every reader of files, each for FUZZTIME (default 1m)
	@git grep -E '^func Fuzz' -- '*_test.go' | sed -E 's,/[^/]*:func (Fuzz[A-Za-z0-9]*).*, \1,' | while read -r dir name; do \
		echo "$$dir $$name"; \
		go test "./$$dir" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s || exit 1; done

clean:  ## remove what was built
	rm -rf bin lib build .venv

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Names what the build needs and the machine lacks.
need:
	@command -v go >/dev/null || { echo "Go is not installed. gpt2scope needs Go 1.26 or later: https://go.dev/dl"; exit 1; }
	@cc=$$(go env CC); command -v $${cc%% *} >/dev/null || { echo "There is no C compiler ($$cc). Install gcc (Debian: apt-get install gcc libc6-dev; macOS: xcode-select --install), or name the one you have: make CC=clang"; exit 1; }
	@test "$$(go env CGO_ENABLED)" = 1 || { echo "cgo is off. The CPU kernels are C: set CGO_ENABLED=1"; exit 1; }

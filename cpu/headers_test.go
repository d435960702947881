package cpu

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// includesOf returns which headers of this package a file includes.
func includesOf(t *testing.T, file string) []string {
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^#include "(.+)"`).FindAllSubmatch(source, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// TestIncludesGoOneWay reads the drawing in kernels_impl.h: each header stands in one line of it, and includes only headers of the lines above.
func TestIncludesGoOneWay(t *testing.T) {
	source, err := os.ReadFile("kernels_impl.h")
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, _ := strings.Cut(string(source), "// Includes go up:\n")
	drawing, _, _ = strings.Cut(drawing, "\n//\n")
	line := map[string]int{}
	for i, text := range strings.Split(drawing, "\n") {
		text, _, _ = strings.Cut(text, ":")
		for _, name := range strings.Fields(strings.TrimLeft(text, "/ ")) {
			if line[name] != 0 {
				t.Errorf("%s is drawn twice", name)
			}
			line[name] = i + 1
		}
	}
	files, _ := filepath.Glob("*.[ch]")
	for _, file := range files {
		if strings.HasPrefix(file, "kernels_") && strings.HasSuffix(file, ".c") && line[file] == 0 {
			line[file] = line["kernels_*.c"]
		}
		if line[file] == 0 {
			t.Errorf("%s is not in the drawing of includes in kernels_impl.h", file)
			continue
		}
		for _, name := range includesOf(t, file) {
			if line[name] == 0 || line[name] >= line[file] {
				t.Errorf("%s includes %s, which the drawing in kernels_impl.h does not have above it", file, name)
			}
		}
	}
}

// TestHeadersAlone compiles each header by itself for each version that uses it. If the version's own file includes
// kernels_impl.h, the header is compiled in that file, with the version's target and parameters.
func TestHeadersAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the C compiler some fifty times")
	}
	host := []string{"cc"}
	if cc := os.Getenv("CC"); cc != "" {
		host = strings.Fields(cc)
	}
	arm := host
	if runtime.GOARCH != "arm64" {
		arm = []string{"aarch64-linux-gnu-gcc"}
	}
	common := []string{"simd.h", "tile.h", "q8.h", "q8_gemv.h", "norm.h", "rows.h", "linear.h", "attention.h", "elementwise.h", "pack.h", "measure.h"}
	byDot := []string{"tile_dot.h", "bf16.h", "attention_bf16.h", "measure.h"}
	byAMX := []string{"tile_amx.h", "bf16.h", "attention_bf16.h", "split.h", "measure.h"}
	x86 := runtime.GOARCH == "amd64"
	for _, v := range []struct {
		file    string
		cc      []string
		runs    bool
		headers []string
	}{
		{"kernels_portable.c", host, true, append([]string{"kernels.h", "pool.h", "version.h"}, common...)},
		{"kernels_avx2.c", host, x86, common},
		{"kernels_avx512.c", host, x86, append([]string{"avx512.h"}, common...)},
		{"kernels_avx512_bf16.c", host, x86, byDot},
		{"kernels_amx.c", host, x86, byAMX},
		{"kernels_neon.c", arm, true, common},
	} {
		t.Run(strings.TrimSuffix(v.file, ".c"), func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(v.cc[0]); err != nil || !v.runs {
				t.Skipf("no compiler for %s", v.file)
			}
			source, err := os.ReadFile(v.file)
			if err != nil {
				t.Fatal(err)
			}
			before, _, found := strings.Cut(string(source), `#include "kernels_impl.h"`)
			if !found {
				t.Fatalf("%s does not include kernels_impl.h", v.file)
			}
			// version.h would bring in others; of what follows only the ends of conditions and of clang's target matter.
			before = strings.Replace(before, "#include \"version.h\"\n", "#define GS_HAVE_DOT 1\n#define GS_HAVE_AMX 1\n", 1)
			after := ""
			if strings.Contains(before, "attribute push") {
				after = "#if defined(__clang__)\n#pragma clang attribute pop\n#endif\n"
			}
			for range len(regexp.MustCompile(`(?m)^#if`).FindAllString(before, -1)) - strings.Count(before, "#endif") {
				after += "#endif\n"
			}
			for _, header := range v.headers {
				// A header's functions are unused if nothing follows it.
				args := append(slices.Clone(v.cc[1:]), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only", "-I.", "-x", "c", "-")
				cmd := exec.Command(v.cc[0], args...)
				text := before
				if header == "q8_gemv.h" {
					text += "#define GS_GEMV gemv_q8\n"
				}
				cmd.Stdin = strings.NewReader(fmt.Sprintf("%s#include %q\n%s", text, header, after))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s does not compile by itself in %s: %v\n%s", header, v.file, err, bytes.TrimSpace(out))
				}
			}
		})
	}
}

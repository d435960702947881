package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
)

func TestVersion(t *testing.T) {
	if out := mustInfer(t, "--version").stdout; !strings.HasPrefix(out, "infer ") || strings.Count(out, "\n") != 1 || !strings.Contains(out, " go1.") {
		t.Errorf("--version prints %q", out)
	}
	defer func(c, b string) { cli.Commit, cli.Built = c, b }(cli.Commit, cli.Built)
	cli.Commit, cli.Built = strings.Repeat("0123456789abcdef", 2)+"01234567-dirty", "2026-01-02T03:04:05Z"
	t.Setenv("GPT2SCOPE_CUDA_LIB", filepath.Join(t.TempDir(), "none.so"))
	out := mustInfer(t, "version").stdout
	contains(t, out, "infer commit 0123456789ab modified go1.",
		"\ncommit        0123456789abcdef0123456789abcdef01234567\n",
		"\nbuilt         2026-01-02T03:04:05Z\n", "\nno CUDA ", "make cuda")
	if strings.Contains(cli.Version(), cli.Built) {
		t.Errorf("%q has the time of the build", cli.Version())
	}

	// The library's version is known without a driver.
	for define, lacks := range map[string]string{"STUB_DRIVER=0": "no NVIDIA driver", "STUB_DEVICES=1": ""} {
		withStub(t, define)
		path := os.Getenv("GPT2SCOPE_CUDA_LIB")
		var v versionJSON
		unmarshal(t, mustInfer(t, "version", "--json").stdout, &v)
		if v.CUDA != "13.0" || !v.Modified || v.Commit != cli.Commit[:40] || v.Built != cli.Built || !strings.Contains(v.CUDALacks, lacks) || (lacks == "") != (v.CUDAPath == path) {
			t.Errorf("%s: %+v", define, v)
		}
	}
}

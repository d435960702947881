package cpu

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The NEON kernels, tested on a machine that has none: this package's tests, cross-compiled for 64-bit Arm and run by
// an emulator. It needs a cross compiler and qemu's user mode (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross,
// qemu-user), and is skipped if they are missing.
func TestNEONByEmulation(t *testing.T) {
	if testing.Short() || runtime.GOARCH == "arm64" {
		t.Skip("short, or the real thing is here")
	}
	const cc, qemu, libs = "aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu"
	for _, tool := range []string{"go", cc, qemu} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	binary := filepath.Join(t.TempDir(), "cpu.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=1", "CC="+cc, "CGO_CFLAGS=-g -O2 -Werror")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cross-compiling: %v\n%s", err, out)
	}
	run := exec.Command(qemu, "-L", libs, binary, "-test.short", "-test.v", "-test.run",
		"^Test(Pack|LayerNorm|Linear|Activations|Elementwise|Embed|Attention|NaNPropagates|Q8Extremes)$/^neon")
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("under emulation: %v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("--- PASS: TestLinear/neon-dot")) {
		t.Errorf("the emulated processor did not run the version with dot products:\n%s", out)
	}
	t.Logf("%s", out)
}

package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/stub"
)

func openStub(t *testing.T) *stub.Control {
	t.Helper()
	path := stub.Build(t)
	t.Setenv("GPT2SCOPE_CUDA_LIB", path)
	stub.NVRTC(t)
	return stub.Open(t, path)
}

// The stub adds; the program checks, says what it did, and frees all.
func TestRun(t *testing.T) {
	c := openStub(t)
	for _, n := range []int{1, 255, 100_003} {
		var out bytes.Buffer
		c.Reset()
		if err := run(&out, 0, n); err != nil {
			t.Fatal(err)
		}
		from := 0
		for _, part := range []string{"Stub 0", "compile", "1 allocate on the host", "2 allocate on the device", "3 fill", "4 copy to the device", "5 launch", "the launch returned after", "6 copy back", "check", "right"} {
			at := strings.Index(out.String()[from:], part)
			if at < 0 {
				t.Fatalf("lacks %q, in order:\n%s", part, out.String())
			}
			from += at
		}
		if c.Live() != 0 {
			t.Errorf("%d objects live", c.Live())
		}
		if calls := c.Calls(); !slices.Contains(calls, "gs_function_launch") {
			t.Error(calls)
		}
	}
}

// Whatever fails, the error says in which step, and nothing leaks.
func TestFailures(t *testing.T) {
	c := openStub(t)
	for _, f := range []struct {
		what string
		nth  int
		step string
	}{{"gs_stream_create", 1, ""}, {"gs_module_compile", 1, "compile"}, {"gs_alloc_host", 2, "1 allocate on the host"}, {"gs_alloc", 3, "2 allocate on the device"},
		{"gs_copy", 2, "4 copy to the device"}, {"launch", 1, "5 launch"}, {"gs_stream_synchronize", 2, "5 launch"}, {"gs_copy", 3, "6 copy back"}} {
		c.Reset()
		c.Fail(f.what, f.nth)
		var failure *cuda.Error
		if err := run(new(bytes.Buffer), 0, 1000); !errors.As(err, &failure) || !strings.Contains(err.Error(), f.step) {
			t.Errorf("%s %d: %v", f.what, f.nth, err)
		}
		if c.Live() != 0 {
			t.Errorf("%s %d: %d objects live", f.what, f.nth, c.Live())
		}
	}
}

// A wrong result is found.
func TestCheck(t *testing.T) {
	openStub(t)
	lib, err := cuda.Open()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := lib.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{dev: dev, n: 5000}
	defer func() {
		if err := p.free(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(p.allocateHost(), p.fill()); err != nil {
		t.Fatal(err)
	}
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "z[0] is NaN") {
		t.Error("z was never computed:", err)
	}
	x, y, z := floats(p.x), floats(p.y), floats(p.z)
	for i := range z {
		z[i] = x[i] + y[i]
	}
	if err := p.check(); err != nil {
		t.Error(err)
	}
	z[4999]++
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "z[4999]") {
		t.Error("the last is wrong:", err)
	}
}

package nvtx_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cuda/nvtx"
)

const sayStatus = "GPT2SCOPE_NVTX_TEST_STATUS"

func TestMain(m *testing.M) {
	if os.Getenv(sayStatus) != "" { // a process of its own: what is attached is decided at the start
		if err := nvtx.Status(); err != nil {
			os.Stdout.WriteString(err.Error())
		}
		d := nvtx.NewDomain("test")
		d.Push(event(d))
		d.Pop()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func event(d *nvtx.Domain) nvtx.Event {
	return nvtx.Event{Message: d.Register("range"), Text: "range", Color: nvtx.Blue, Category: d.Category("Op"), Payload: 1}
}

// status returns what a process says of itself that a tool seems to have started.
func status(t *testing.T, env ...string) string {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Dir = t.TempDir()
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GPT2SCOPE_") && !strings.HasPrefix(e, "NVTX_") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(append(c.Env, sayStatus+"=1"), env...)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestStatus(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		want []string // nil: nothing to say
	}{
		{"no tool", nil, nil},
		{"library missing", []string{"NVTX_INJECTION64_PATH=/x.so"}, []string{"NVTX_INJECTION64_PATH", nvtx.Library, "make nvtx"}},
		{"Nsight Systems without NVTX", []string{"NSYS_PROFILING_SESSION_ID=1"}, []string{"NSYS_PROFILING_SESSION_ID"}},
		{"named library missing", []string{"NVTX_INJECTION64_PATH=/x.so", nvtx.LibraryEnv + "=/nowhere.so"}, []string{"/nowhere.so", "no such file"}},
		{"no library", []string{"CUDA_INJECTION64_PATH=/x.so", nvtx.LibraryEnv + "=" + text}, []string{text, "cannot be opened"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := status(t, c.env...)
			if (got == "") != (c.want == nil) || strings.Contains(got, "\n") {
				t.Fatalf("status is %q", got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("status %q does not say %q", got, want)
				}
			}
		})
	}
}

// The variable keeps calls from being removed.
var domain = nvtx.NewDomain("benchmark")

func BenchmarkOff(b *testing.B) {
	if nvtx.Active() {
		b.Skip("a tool is attached")
	}
	e := event(domain)
	for b.Loop() {
		domain.Push(e)
		domain.Pop()
	}
}

// TestOffCostsNothing: with no tool a range costs at most 50 ns and allocates
// nothing. The best of several measurements counts, since others use the machine.
func TestOffCostsNothing(t *testing.T) {
	if nvtx.Active() {
		t.Skip("a tool is attached")
	}
	e := event(domain)
	if n := testing.AllocsPerRun(100, func() {
		domain.Push(e)
		domain.Mark(e)
		domain.End(domain.Start(e))
		domain.Pop()
		nvtx.NameThread("thread")
	}); n != 0 {
		t.Errorf("a range allocates %v times", n)
	}
	best := int64(1 << 62)
	for range 5 {
		best = min(best, testing.Benchmark(func(b *testing.B) {
			for range b.N {
				domain.Push(e)
				domain.Pop()
			}
		}).NsPerOp())
		if best <= 50 {
			return
		}
	}
	t.Errorf("a range costs %d ns with no tool attached, want at most 50", best)
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpt2scope/auto"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/require"
)

// driverRoot makes files as a driver's.
func driverRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "dev"), 0o777))
	writeFile(t, filepath.Join(root, "dev/nvidiactl"), "")
	return root
}

// withDriver makes files as a driver's, and returns how the program is run there, with a
// history in a cache folder of its own.
func withDriver(t *testing.T) func(args ...string) ended {
	t.Helper()
	root := driverRoot(t)
	t.Setenv(cli.HistoryVariable, "")
	if os.Getenv("XDG_CACHE_HOME") == "" {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	return func(args ...string) ended {
		t.Helper()
		m := cli.ModelFlags{AutoFlags: cli.AutoFlags{Root: root}}
		var stdout, stderr bytes.Buffer
		status := run(context.Background(), &m, args, strings.NewReader("Hark\n"), &stdout, &stderr)
		return ended{status, stdout.String(), stderr.String()}
	}
}

// stopping is a terminal whose user stops the process and lets it go on.
type stopping struct{ bytes.Buffer }

func (s *stopping) Write(b []byte) (int, error) {
	if s.Len() == 0 {
		seen := make(chan os.Signal, 1)
		signal.Notify(seen, syscall.SIGCONT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGCONT)
		<-seen
		signal.Stop(seen)
	}
	return s.Buffer.Write(b)
}

// A run that was stopped and went on tells the history nothing: the pause is not decode time.
func TestStoppedRunIsNotRemembered(t *testing.T) {
	withStub(t)
	infer := withDriver(t)
	before := len(keptRuns(t))
	infer(short...)
	if n := len(keptRuns(t)); n != before+1 {
		t.Fatalf("a run left %d records", n-before)
	}
	m := cli.ModelFlags{AutoFlags: cli.AutoFlags{Root: driverRoot(t)}}
	if status := run(t.Context(), &m, short, strings.NewReader(""), new(stopping), new(bytes.Buffer)); status != exitOK {
		t.Fatalf("status %d", status)
	}
	if n := len(keptRuns(t)); n != before+1 {
		t.Errorf("a run that was stopped left %d records", n-before-1)
	}
}

// autoResult is what of --json tells how a device was chosen.
type autoResult struct {
	IDs   []int32       `json:"ids"`
	Auto  *cli.AutoJSON `json:"auto"`
	Where cli.Setting   `json:"configuration"`
}

func parseAuto(t *testing.T, e ended) (r autoResult) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil || e.status != exitOK {
		t.Fatalf("status %d, %v: %q, %s", e.status, err, e.stdout, e.stderr)
	}
	return r
}

// keptRuns reads the history that runs left.
func keptRuns(t *testing.T) []auto.Record {
	t.Helper()
	path := require.Value(auto.Path())(t)
	h := require.Value(auto.Read(path, time.Now()))(t)
	return h.Records
}

// short is a run that a CPU ends before CUDA has started, long one that it does not if it is slow. With one thread
// they take no longer on a busy machine.
var (
	short = []string{"-m", tiny, "--threads", "1", "-p", "ROMEO:", "-n", "9", "--ignore-eos", "-s", "3"}
	long  = []string{"-m", tiny, "--threads", "1", "-p", "ROMEO:", "-n", "1500", "--ignore-eos", "-s", "3"}
)

// A short run takes the CPU, opens nothing of CUDA, and says why.
func TestAutoTakesTheCPU(t *testing.T) {
	withStub(t)
	infer := withDriver(t)
	opened := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip(err)
		}
		return strings.Contains(string(maps), os.Getenv("GPT2SCOPE_CUDA_LIB"))
	}
	e := infer(short...)
	if e.status != exitOK || strings.Count(e.stderr, "--device auto took the CPU: about ") != 1 ||
		!strings.Contains(e.stderr, " of them to start ") || !strings.Contains(e.stderr, "(predicted by 0 runs here on the CPU and 0 on the GPU)") {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
	if opened() {
		t.Error("the CUDA library was opened")
	}
	r := parseAuto(t, infer(with(short, "--json")...))
	if r.Auto == nil || r.Auto.Device != "cpu" || r.Where.Device != "cpu" || r.Auto.CPU.Runs != 1 || !(r.Auto.CPU.Total > 0 && r.Auto.CPU.Total < r.Auto.GPU.Open) {
		t.Errorf("%+v", r.Auto)
	}
	records := keptRuns(t)
	if len(records) != 2 || records[0].GPU || !(records[0].Measured.Decode > 0 && records[0].Predicted.Decode > 0) || records[0].Measured.Load != 0 {
		t.Errorf("the history has %+v", records)
	}
	infer(with(short, "--device", "cpu", "--speculate", "lookup")...)
	if drafted := keptRuns(t)[2]; !(drafted.Measured.Prefill > 0) || drafted.Measured.Decode != 0 {
		t.Errorf("a run that drafted left %+v", drafted)
	}
	if e := infer(with(short, "--quiet")...); e.stderr != "" {
		t.Errorf("--quiet: %s", e.stderr)
	}
	if infer(with(short, "--device", "cuda")...); !opened() {
		t.Error("the CUDA library is not opened by --device cuda either, so that this test says nothing")
	}
}

// slowCPU writes a history in which the CPU was so slow that the GPU is taken for long.
func slowCPU(t *testing.T, infer func(...string) ended) {
	t.Helper()
	infer(short...) // names the CPU
	path, err := auto.Path()
	must(t, err)
	h, err := auto.Read(path, time.Now())
	if err != nil || len(h.Records) == 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	r := h.Records[0]
	r.Waited = 0
	p := r.Predicted
	r.Measured = auto.Times{Open: 15 * p.Open, Prefill: 15 * p.Prefill, Decode: 15 * p.Decode}
	line, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(path, bytes.Repeat(append(line, '\n'), 20), 0o666)
	}
	must(t, err)
}

// Where the CPU has been slow the GPU is taken, and its times are kept too.
func TestAutoTakesTheGPU(t *testing.T) {
	withStub(t)
	infer := withDriver(t)
	slowCPU(t, infer)
	before := len(keptRuns(t))
	e := infer(with(long, "--json")...)
	r := parseAuto(t, e)
	if r.Auto == nil || r.Auto.Device != "cuda" || r.Where.Device != "cuda" || !(r.Auto.GPU.Total < r.Auto.CPU.Total) || !slices.Equal(r.IDs[:3], []int32{1, 2, 3}) {
		t.Errorf("%+v, %v: %s", r.Auto, r.IDs, e.stderr)
	}
	contains(t, e.stderr, "--device auto took the GPU, Stub 0, mode auto: about ", "; --device cpu runs there")
	records := keptRuns(t)
	last := records[len(records)-1]
	if len(records) != before+1 || !last.GPU || last.Device != "Stub 0" || last.DType != "bf16" || !(last.Measured.Open > 0 && last.Measured.Prefill > 0) {
		t.Errorf("%d records, the last %+v", len(records), last)
	}
	if r := parseAuto(t, infer(with(long, "--json")...)); r.Auto.GPU.Runs != 1 {
		t.Errorf("the next choice: %+v", r.Auto)
	}
}

// What asks to measure, or for a mode, is not predicted: it takes the GPU.
func TestAutoWithoutAChoice(t *testing.T) {
	withStub(t)
	infer := withDriver(t)
	for _, flags := range [][]string{{"--profile"}, {"--mode", "graph"}, {"--warm-up"}, {"--dtype", "q8"}} {
		if r := parseAuto(t, infer(with(short, with(flags, "--json")...)...)); r.Auto != nil || r.Where.Device != "cuda" {
			t.Errorf("%q: %+v on %s", flags, r.Auto, r.Where.Device)
		}
	}
	if e := infer("bench", "-m", tiny, "--past", "8", "--no-floor"); !strings.Contains(e.stderr, "--device auto took the GPU, Stub 0") {
		t.Errorf("bench: %s", e.stderr)
	}
}

// The history is neither read nor written if it is turned off, by flag or variable.
func TestNoHistory(t *testing.T) {
	withStub(t)
	infer := withDriver(t)
	slowCPU(t, infer)
	n := len(keptRuns(t))
	off := func(what string, args ...string) {
		t.Helper()
		if r := parseAuto(t, infer(with(long, args...)...)); r.Auto == nil || r.Auto.CPU.Runs != 0 || r.Where.Device != "cpu" || len(keptRuns(t)) != n {
			t.Errorf("%s: %+v, %d records, there were %d", what, r.Auto, len(keptRuns(t)), n)
		}
	}
	off("the flag", "--json", "--no-history")
	t.Setenv(cli.HistoryVariable, "off")
	off("the variable", "--json")
}

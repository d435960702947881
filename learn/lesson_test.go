package learn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
)

// TestMain runs a Program if the process was started for that.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "learn" {
		if err := FindProgram(os.Args[3])(context.Background(), os.Args[4:], os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// quick is an environment for tests, without a GPU.
func quick(t *testing.T) *Env {
	t.Helper()
	self := func(ctx context.Context, words []string) ([]byte, error) {
		return exec.CommandContext(ctx, os.Args[0], words...).Output()
	}
	return &Env{Quick: true, Infer: self, NoGPU: "this test has none"}
}

// withStub gives an environment the stub's GPU.
func withStub(t *testing.T, e *Env) *stub.Control {
	t.Helper()
	path := stub.Build(t)
	t.Setenv("GPT2SCOPE_CUDA_LIB", path)
	stub.NVRTC(t)
	lib, err := cuda.Open()
	require.NoError(t, err)
	if e.Device, err = lib.Device(0); err != nil {
		t.Fatal(err)
	}
	return stub.Open(t, path)
}

// Each lesson is whole: a claim of one line, an experiment, an explanation of at most 150 words with what was found,
// and a way on.
func TestLessons(t *testing.T) {
	shipped := shippedRecording(t)
	for i, l := range All() {
		if i > 0 && l.Number <= All()[i-1].Number {
			t.Errorf("lesson %d stands after lesson %d", l.Number, All()[i-1].Number)
		}
		tool, _, _ := strings.Cut(l.GoOn, " ")
		if l.Claim == "" || len(l.Claim) > 120 || strings.Contains(l.Claim, "\n") || l.Why == "" ||
			l.CPU == nil && l.GPU == nil || tool != "infer" {
			t.Errorf("lesson %d is not whole: %+v", l.Number, l)
		}
		if words := len(strings.Fields(l.Why)); words > 150 {
			t.Errorf("lesson %d: the explanation has %d words, at most 150 are read", l.Number, words)
		}
		for _, x := range []*Experiment{l.CPU, l.GPU} {
			if x != nil && (x.Run == nil || x.Judge == nil) {
				t.Errorf("lesson %d: an experiment lacks Run or Judge", l.Number)
			}
		}
		if l.GPU != nil && len(shipped.Lessons[cmp.Or(l.DataOf, l.Number)][OnGPU]) == 0 {
			t.Errorf("lesson %d: the recording that ships lacks its data", l.Number)
		}
	}
}

// No data decide nothing, and no judge or picture panics on them, on points of other experiments or on zeros.
func TestNoData(t *testing.T) {
	for _, l := range All() {
		for _, x := range []*Experiment{l.CPU, l.GPU} {
			if x == nil {
				continue
			}
			other := Point{Case: "of another lesson", Quantity: "time_us", Value: 1}
			for _, d := range []Data{nil, {other}, {{Case: other.Case, Quantity: other.Quantity, Value: math.NaN()}}} {
				if f := x.judge(d); f.Verdict != Unknown || f.Text == "" {
					t.Errorf("lesson %d: data %v give %q: %s", l.Number, d, f.Verdict, f.Text)
				}
				if x.Picture != nil {
					x.Picture(d)
				}
			}
		}
	}
}

// finite tells whether all values are finite, as JSON needs them.
func finite(d Data) bool {
	for _, p := range d {
		if math.IsNaN(p.Value+p.X) || math.IsInf(p.Value, 0) || math.IsInf(p.X, 0) {
			return false
		}
	}
	return true
}

// checkResult checks a result of a quick environment.
func checkResult(t *testing.T, r Result) {
	t.Helper()
	for _, p := range r.Parts {
		if p.Failed != nil {
			t.Errorf("lesson %d on the %s: %v", r.Number, p.Device, p.Failed)
		}
		if !slices.Contains([]Verdict{Shown, HalfTrue, Refuted, Unknown}, p.Verdict) || p.Text == "" {
			t.Errorf("lesson %d on the %s: verdict %q, %q", r.Number, p.Device, p.Verdict, p.Text)
		}
		if !finite(p.Data) {
			t.Errorf("lesson %d on the %s: the data hold a value that is not finite: %+v", r.Number, p.Device, p.Data)
		}
		if p.Recorded == "" && p.Reason == "" && p.Verdict != Unknown && len(p.Figures) == 0 {
			t.Errorf("lesson %d on the %s: a verdict without a figure", r.Number, p.Device)
		}
	}
}

// Each lesson runs without a GPU. The data of its experiments survive a recording.
func TestRunWithoutGPU(t *testing.T) {
	var recording Recording
	e := quick(t)
	for _, l := range All() {
		r, err := Run(t.Context(), e, l, FindMachine(nil), nil)
		require.NoError(t, err)
		checkResult(t, r)
		for _, p := range r.Parts {
			if p.Device == OnGPU && (p.Reason == "" || p.Verdict != Unknown) {
				t.Errorf("lesson %d on a GPU that is not there: %+v", l.Number, p)
			}
		}
		recording.Add(r)
		var file bytes.Buffer
		require.NoError(t, recording.Write(&file))
		read, err := ReadRecording(&file)
		if err != nil {
			if recording.Lessons != nil {
				t.Fatal(err)
			}
			continue
		}
		for i, p := range judged(t, l, read).Parts {
			if q := r.Parts[i]; p.Verdict != q.Verdict || len(q.Data) > 0 && (p.Text != q.Text || p.Recorded == "" && p.Of == "") {
				t.Errorf("lesson %d on the %s: the recording gives %+v, the data gave %+v", l.Number, p.Device, p, q)
			}
		}
	}
	if len(recording.Lessons) == 0 {
		t.Error("nothing was measured")
	}
}

// Each lesson runs on the stub, where every kernel is done at once, and frees what it took; also if a call fails.
func TestRunOnStub(t *testing.T) {
	e := quick(t)
	c := withStub(t, e)
	for _, l := range All() {
		if l.GPU == nil {
			continue
		}
		c.Reset()
		r := require.Value(Run(t.Context(), e, l, FindMachine(e.Device), nil))(t)
		checkResult(t, r)
		if p := r.Parts[len(r.Parts)-1]; p.Device != OnGPU || len(p.Data) == 0 && p.Reason == "" {
			t.Errorf("lesson %d measured nothing on the stub: %+v", l.Number, p)
		}
		if c.Live() != 0 {
			t.Errorf("lesson %d leaves %d objects", l.Number, c.Live())
		}
		if l.Number == 2 && r.Verdict != Refuted { // the stub's device memory is the host's: two of three programs are right
			t.Errorf("lesson 2: %+v", r.Parts)
		}
		for _, what := range []string{"alloc", "launch", "gs_event_synchronize"} {
			c.Reset()
			c.Fail(what, 2)
			_, err := measure(t.Context(), e, l.GPU.Run)
			var failure *cuda.Error
			if err != nil && !errors.As(err, &failure) && !errors.Is(err, errNotHere) {
				t.Errorf("lesson %d, %s fails: %v", l.Number, what, err)
			}
			if c.Live() != 0 {
				t.Errorf("lesson %d, %s fails: it leaves %d objects", l.Number, what, c.Live())
			}
		}
	}
}

// A file that is no recording is refused with a sentence.
func TestReadRecording(t *testing.T) {
	for text, want := range map[string]string{
		"": "not a recording", "{": "not a recording", "\x1f\x8bxx": "not a recording",
		`{"version":9,"lessons":{}}`: "version 9", `{"version":1}`: "no lessons",
		`{"version":1,"lessons":{"x":{}}}`: "not a recording",
	} {
		if _, err := ReadRecording(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A silent pipe does not outlast the context.
func TestReadingEnds(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(stopped) })
	if _, err := ReadFile(ctx, pipe); !errors.Is(err, stopped) {
		t.Errorf("a pipe without a writer: %v", err)
	}
}

// Times that were measured beside other work decide nothing; what a tool says does.
func TestOtherWork(t *testing.T) {
	busy := squaresData(3333, 3500, 3600, 3330)
	busy.add(otherWork, "waited_share", 0, 0.4)
	if f := lesson06.CPU.judge(busy); f.Verdict != Unknown || len(f.Figures) == 0 || !strings.Contains(f.Text, "for 40 % of the time") {
		t.Errorf("%s: %s", f.Verdict, f.Text)
	}
	asked := Data{{Case: "ncu", Quantity: "metrics", Value: 3000}}
	asked.add(otherWork, "waited_share", 0, 0.4)
	if f := lesson13.CPU.judge(asked); f.Verdict == Unknown {
		t.Errorf("%s: %s", f.Verdict, f.Text)
	}
}

// A lesson whose parts differ is half true.
func TestVerdictOfParts(t *testing.T) {
	for _, c := range []struct{ cpu, gpu, want Verdict }{
		{Refuted, Shown, HalfTrue}, {Shown, Shown, Shown}, {Unknown, Refuted, Refuted}, {Shown, Unknown, Shown}, {HalfTrue, Shown, HalfTrue}, {Unknown, Unknown, Unknown},
	} {
		of := map[string]Verdict{OnCPU: c.cpu, OnGPU: c.gpu}
		l := Lesson{CPU: new(Experiment), GPU: new(Experiment)}
		r, err := l.result(t.Context(), func(device string) Part { return Part{Finding: Finding{Verdict: of[device]}} })
		if err != nil || r.Verdict != c.want {
			t.Errorf("%s and %s give %s", c.cpu, c.gpu, r.Verdict)
		}
	}
}

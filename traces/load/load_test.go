package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/diff"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/pprof"
	"gpt2scope/traces/tables"
)

// TestForeign: the content of a file says what it is, whatever its name is, and the error says what to give instead.
func TestForeign(t *testing.T) {
	random := make([]byte, 9000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	const (
		report  = "NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)"
		details = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Section " +
			"Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\"0\",\"7\",\"infer\"\n"
	)
	for name, c := range map[string]struct {
		content string
		facts   []string
		not     string
	}{
		"a.nsys-rep":   {report, []string{"is a report of Nsight Systems", "nsys export --type sqlite"}, "not a trace"},
		"a.json":       {report, []string{"is a report of Nsight Systems", "nsys export --type sqlite"}, "JSON"},
		"b.nsys-rep":   {string(random), []string{"is not a trace", "not that of a report of Nsight Systems", "nsys export --type sqlite"}, "is a report"},
		"b.ncu-rep":    {string(random), []string{"is not a trace", "not that of a report of Nsight Compute", "ncu --csv --page details"}, "is a report"},
		"random":       {string(random), []string{"is not a trace", "neither JSON"}, "report"},
		"c.ncu-rep":    {"NVR\x00\x02\x00\x00\x00", []string{"is a report of Nsight Compute", "ncu --csv --page details --import"}, "JSON"},
		"d.csv":        {details, []string{"is output of Nsight Compute", "ncu --csv --page details", "nsys export --type sqlite"}, "JSON"},
		"e.txt":        {"==PROF== Connected to process 7 (/bin/infer)\n==PROF== Disconnected\n" + details, []string{"is output of Nsight Compute"}, "JSON"},
		"messages.csv": {"some lines of the program\n" + details, []string{"is output of Nsight Compute"}, "JSON"},
		"a.zip":        {"PK\x03\x04\x14\x00", []string{"is a zip archive", "unzip"}, "JSON"},
		"sum.txt":      {" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n", []string{"is a table of nsys stats"}, "JSON"},
		"old.txt":      {"Generating CUDA Kernel Statistics...\n Time(%)  Total Time (ns)  Instances\n", []string{"is a table of nsys stats"}, "JSON"},
		"nvprof.txt":   {"==42== NVPROF is profiling process 42, command: ./a\n", []string{"is a table of nvprof", "nsys profile"}, "JSON"},
		"rocprof.csv":  {"\"Kind\",\"Agent_Id\",\"Queue_Id\"\n", []string{"rocprofv3", "PyTorch's profiler"}, "JSON"},
		"rocprof.json": {"{ \"rocprofiler-sdk-tool\": [{", []string{"rocprofv3"}, "JSON"},
		"proton.json":  {"[{\"children\": [], \"frame\": {}}]", []string{"Proton"}, "JSON"},
		"a.xplane.pb":  {"\n\x8f\x01\x08\x01\x12\x09/host:CPU\x1a", []string{"xplane.pb", "trace.json.gz"}, "JSON"},
		"text":         {"hello", []string{"is not a trace", "neither JSON"}, "byte 0"},
	} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(c.content), 0o666))
		_, err := Load(path)
		if err == nil {
			t.Errorf("%s is read", name)
			continue
		}
		fixtures.Says(t, name, err.Error(), append(c.facts, path)...)
		if strings.Contains(strings.ReplaceAll(err.Error(), path, ""), c.not) {
			t.Errorf("%s: error %q says %q", name, err, c.not)
		}
	}

	_, err := (Source{Path: "standard input", Stream: strings.NewReader(report)}).Load()
	if err == nil || !strings.HasPrefix(err.Error(), "standard input is a report") ||
		!strings.Contains(err.Error(), "nsys export --type sqlite FILE,") {
		t.Errorf("a report as a stream: error %v", err)
	}

	// A table of nsys stats, and recordings whatever they are called.
	for _, table := range []string{"eager.cuda_gpu_kern_sum", "pytorch/bad.cuda_gpu_mem_size_sum",
		"pytorch/bad.cuda_kern_exec_sum", "pytorch/bad.nvtx_gpu_proj_sum"} {
		if _, err := Load("../samples/" + table + ".csv"); err == nil || !strings.Contains(err.Error(), "nsys stats") {
			t.Errorf("%s, a table of nsys stats: error %v", table, err)
		}
	}
	for from, name := range map[string]string{"../samples/eager.sqlite": "x.ncu-rep",
		"../samples/shipped-eager-stamps.json.gz": "x.nsys-rep", "../testdata/kineto.json": "x.csv"} {
		content := require.Value(os.ReadFile(from))(t)
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, content, 0o666))
		if _, err := Load(path); err != nil {
			t.Errorf("%s as %s: %v", from, name, err)
		}
	}
}

// TestStream: a trace of any format is the same from a file and from a stream, and nothing is left of a copied one.
func TestStream(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, path := range []string{"../samples/eager.sqlite", "../samples/gpt2-L1-graph-stamps.json.gz",
		"../testdata/kineto.json"} {
		want := require.Value(Load(path))(t)
		f := require.Value(os.Open(path))(t)
		defer f.Close()
		got, err := Source{Path: "standard input", Stream: f}.Load()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %d events of %d", path, err, len(got.Events), len(want.Events))
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", err, left)
	}
	for text, want := range map[string]string{"": "standard input is empty, not a trace",
		"SQLite format 3\x00 damaged": "standard input is not a readable export of Nsight Systems: ", "{}": "standard input: it is not a trace"} {
		if _, err := (Source{Path: "standard input", Stream: strings.NewReader(text)}).Load(); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestProgress: what is read of a file grows to all of it.
func TestProgress(t *testing.T) {
	for _, path := range []string{"../samples/gpt2-xl-eager-stamps.json.gz", "../samples/graph.sqlite"} {
		info := require.Value(os.Stat(path))(t)
		calls, last := 0, int64(0)
		if _, err := (Source{Path: path, Progress: func(done, total int64) {
			if done < last || done > total || total != info.Size() {
				t.Errorf("%s: %d of %d bytes, after %d, of %d", filepath.Base(path), done, total, last, info.Size())
			}
			calls, last = calls+1, done
		}}).Load(); err != nil {
			t.Fatal(err)
		}
		if isJSON := strings.HasSuffix(path, ".gz"); calls == 0 || isJSON && (calls < 3 || last != info.Size()) {
			t.Errorf("%s: %d calls, %d of %d bytes", filepath.Base(path), calls, last, info.Size())
		}
	}
}

// TestReadingEnds: a wait for the writer of a pipe, and the reading of a file, end with the context.
func TestReadingEnds(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	stopped := errors.New("stopped by the user")
	for _, path := range []string{pipe, "../samples/graph.sqlite", "../samples/gpt2-L1-eager-cupti.json.gz"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if path != pipe {
			cancel(stopped)
		}
		done := make(chan error)
		go func() {
			_, err := Source{Path: path, Context: ctx}.Load()
			done <- err
		}()
		cancel(stopped)
		if err := <-done; !errors.Is(err, stopped) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// In the middle of a stream, too.
	ctx, cancel := context.WithCancelCause(t.Context())
	events := strings.Repeat(`{"ph":"X","name":"a","ts":1.5,"dur":1,"pid":1,"tid":1},`, 10_000)
	first := true
	endless := reader(func(b []byte) (int, error) {
		if first {
			first = false
			return copy(b, `{"traceEvents":[`), nil
		}
		cancel(stopped)
		return copy(b, events), nil
	})
	if _, err := (Source{Path: "endless", Stream: endless, Context: ctx}).Load(); !errors.Is(err, stopped) {
		t.Errorf("a stream without an end: %v", err)
	}
}

// reader reads by a function.
type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// TestHostile: whatever the events are, comparing, advising and profiling end, and the profile sums to the wall time.
func TestHostile(t *testing.T) {
	done := [3]int{}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		random := func() *traces.Trace {
			h := fixtures.Plan("wte+wpe", "h.0.ln_1", "h.0.ln_1", "h.7.ln_1")
			h.Devices[0].SMs = r.IntN(3) * 50
			if seed%2 == 0 {
				h.Recorder = traces.RecorderStamps
			}
			h.Ceilings = []traces.Ceiling{{Device: r.IntN(2) - 1, Name: "read", Unit: "GB/s", Value: r.Float64()*4 - 1}}
			for i := range h.Plans[0].Steps {
				h.Plans[0].Steps[i].Bytes = r.Int64N(4000) - 500
			}
			times := []int64{1, 1000, 1e9, traces.MaxTime - 1}
			lanes := []traces.Lane{traces.Thread(1, 1), traces.Thread(1, 2), traces.API(1, 1), traces.Stream(1, 0, 1, 7),
				traces.Stream(1, 0, 1, 8), traces.Stream(2, 1, 1, 7)}
			var events []traces.Event
			for range r.IntN(60) {
				e := traces.Plain(traces.Kind(r.IntN(int(traces.KindCounter)+1)), lanes[r.IntN(len(lanes))],
					[]string{"warm-up", "Memcpy", "cudaStreamSynchronize", "cudaLaunchKernel", "x"}[r.IntN(5)], 0, 0)
				limit := times[r.IntN(len(times))]
				e.Time, e.Duration = r.Int64N(2*limit)-limit, r.Int64N(limit)
				e.Open = r.IntN(20) == 0 && e.Kind.IsRange()
				if e.Open {
					e.Duration = 0
				}
				e.Plan, e.Step = int32(r.IntN(4)-2), int32(r.IntN(7)-2)
				e.ID, e.Parent, e.Correlation, e.Node = uint64(r.IntN(8)), uint64(r.IntN(8)), uint64(r.IntN(8)), uint64(r.IntN(3))
				for i := range e.Grid {
					e.Grid[i], e.Block[i] = int32(r.IntN(5)-1), int32(r.Uint32())
				}
				e.Registers, e.DynamicShared = int32(r.Uint32()), int32(r.Uint32())
				e.Value = r.NormFloat64() * 1e9
				events = append(events, e)
			}
			return fixtures.Trace(h, events...)
		}
		a, b := random(), random()
		if c, err := diff.Compare(a, b, tables.ByStage, 0.05, -1); err == nil {
			done[0]++
			if len(c.Rows) == 0 {
				t.Errorf("seed %d: a comparison of nothing", seed)
			}
		}
		if advice, err := judge.Advise(a, -1); err == nil {
			done[1]++
			for _, h := range advice.Hints {
				if h.Gain <= 0 || h.Gain > advice.Wall {
					t.Errorf("seed %d: of %d ns there could be gained: %+v", seed, advice.Wall, h)
				}
			}
		}
		if p, err := pprof.Profile(a, -1); err == nil {
			done[2]++
			sum := int64(0)
			for _, s := range p.Sample {
				sum += s.Value[0]
			}
			// Operations of several threads overlap, as in any profile of CPUs.
			table, err := tables.SummarizeAny(a, -1)
			if overlap := err == nil && table.By == tables.ByOp && sum > p.DurationNanos; sum != p.DurationNanos && !overlap {
				t.Errorf("seed %d: the profile sums to %d of %d", seed, sum, p.DurationNanos)
			}
		}
	}
	for i, n := range done {
		if n < 20 {
			t.Errorf("only %d of function %d were made", n, i)
		}
	}
}

// TestRanks: each thing in a recording that names a rank gives it to its process.
func TestRanks(t *testing.T) {
	process := func(id int64) string { return fmt.Sprint(id << 24) }
	kernel := func(id int64) string {
		return fmt.Sprintf(`INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1, 7, 1, %d, %d<<24)`, id, id)
	}
	capture := func(more ...string) string {
		return sqlite(t, append([]string{
			`CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)`,
			`CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, shortName INTEGER, correlationId INTEGER, globalPid INTEGER)`,
			`CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)`,
			`CREATE TABLE MPI_RANKS (globalTid INTEGER NOT NULL, rank INTEGER NOT NULL)`,
			`CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)`, kernel(4711)}, more...)...)
	}
	kineto := func(name, head string) string {
		path := filepath.Join(t.TempDir(), name)
		text := `{"schemaVersion":1,` + head + `"traceEvents":[
			{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":4711,"tid":4711,"ts":1,"dur":1,"args":{"correlation":1}},
			{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":3,"dur":1,"args":{"correlation":1,"device":0,"stream":7}}]}`
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	environment := func(value string) string {
		return `INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', '` + value + `')`
	}
	for _, c := range []struct{ what, path, want string }{
		{"PyTorch", kineto("a.json", `"distributedInfo":{"backend":"cpu:gloo,cuda:nccl","rank":3,"world_size":4},`), "[{4711 3 distributedInfo true}]"},
		{"PyTorch, one process", kineto("b.json", ``), "[]"},
		{"PyTorch, a rank that is a word", kineto("c.json", `"distributedInfo":{"rank":"x"},`), "[]"},
		{"PyTorch, a rank below 0", kineto("d.json", `"distributedInfo":{"rank":-1},`), "[]"},
		{"the file's name", kineto("run_rank12.json", ``), "[{4711 12 the file's name false}]"},
		{"the file's name, which does not count", kineto("rank5.json", `"distributedInfo":{"rank":3},`), "[{4711 3 distributedInfo false}]"},
		{"torchrun", capture(environment(`RANK="2"`), environment(`SLURM_PROCID="0"`), environment(`LOCAL_RANK="7"`)), "[{4711 2 the variable RANK false}]"},
		{"Open MPI", capture(environment(`OMPI_COMM_WORLD_RANK=1`)), "[{4711 1 the variable OMPI_COMM_WORLD_RANK false}]"},
		{"Slurm", capture(environment(`SLURM_PROCID="5"`)), "[{4711 5 the variable SLURM_PROCID false}]"},
		{"a launcher of several processes", capture(environment(`SLURM_PROCID="0"`), kernel(4712)), "[]"},
		{"a variable that is no number", capture(environment(`RANK="first"`)), "[]"},
		{"MPI", capture(kernel(4712), `INSERT INTO MPI_RANKS VALUES (`+process(4712)+`+4712, 0), (`+process(4711)+`+4711, 1), (`+process(4711)+`+4799, 1)`), "[{4712 0 MPI_RANKS false} {4711 1 MPI_RANKS false}]"},
		{"names of processes", capture(kernel(4712), `INSERT INTO PROCESSES VALUES (`+process(4711)+`, 4711, 'worker rank 0'), (`+process(4712)+`, 4712, 'worker rank 1')`), "[{4711 0 the name of the process false} {4712 1 the name of the process false}]"},
	} {
		tr, err := Load(c.path)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if got := fmt.Sprint(append([]traces.Rank{}, tr.Header.Ranks...)); got != c.want {
			t.Errorf("%s: ranks %s, not %s", c.what, got, c.want)
		}
	}
}

func TestRankInName(t *testing.T) {
	for name, want := range map[string]int{"rank0.json.gz": 0, "run_rank_7.sqlite": 7, "trace-rank=12.json": 12,
		"RANK3": 3, "host.rank-1_step5.json": 1, "frank1.json": -1, "ranking.json": -1, "rank": -1, "rank99999999.json": -1, "": -1} {
		if got, ok := traces.RankInName(name); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q has rank %d (%v), not %d", name, got, ok, want)
		}
	}
}

// TestRanksAreKept: the recordings of two ranks are one with both ranks, whose processes are told
// apart though their ids are equal, and a file of it has them too.
func TestRanksAreKept(t *testing.T) {
	one := func(rank int) *traces.Trace {
		h := &traces.Header{Base: 1000, Process: 1, Recorder: traces.RecorderKineto,
			Ranks: []traces.Rank{{Process: 1, Rank: rank, Source: "distributedInfo"}}}
		return traces.NewTrace(h, fixtures.Launched(1, 10, 20, 30, 40))
	}
	m := require.Value(traces.Merge([]*traces.Trace{one(1), one(0)}, []string{"a", "b"}))(t)
	if m.Header.Clock.Aligned == "" {
		t.Error("how the clocks are aligned is not said")
	}
	path := filepath.Join(t.TempDir(), "rank9.json") // the name does not count
	file := fixtures.Write(t, m.Header, m.Events)
	require.NoError(t, os.WriteFile(path, file, 0o666))
	again := require.Value(Load(path))(t)
	for _, tr := range []*traces.Trace{m, again} {
		var ranks []string
		for i := range tr.Events {
			if e := &tr.Events[i]; e.Kind == traces.KindKernel {
				ranks = append(ranks, tr.Header.ProcessName(tr.Header.ProcessOf(e)))
			}
		}
		if slices.Sort(ranks); strings.Join(ranks, ", ") != "rank 0, rank 1" {
			t.Errorf("kernels are of %q; the ranks are %v", ranks, tr.Header.Ranks)
		}
	}
	for _, name := range []string{`"rank 1 (process 1)"`, `"stream 7 of rank 0"`} {
		if !bytes.Contains(file, []byte(name)) {
			t.Errorf("the file has no track named %s", name)
		}
	}
}

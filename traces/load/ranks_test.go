package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

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
		fixtures.Check(t, os.WriteFile(path, []byte(text), 0o666))
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
	for name, want := range map[string]int{"rank0.json.gz": 0, "run_rank_7.sqlite": 7, "trace-rank=12.json": 12, "RANK3": 3, "host.rank-1_step5.json": 1, "frank1.json": -1, "ranking.json": -1, "rank": -1, "rank99999999.json": -1, "": -1} {
		if got, ok := traces.RankInName(name); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q has rank %d (%v), not %d", name, got, ok, want)
		}
	}
}

// TestRanksAreKept: the recordings of two ranks are one with both ranks, whose processes are told
// apart though their ids are equal, and a file of it has them too.
func TestRanksAreKept(t *testing.T) {
	one := func(rank int) *traces.Trace {
		h := &traces.Header{Base: 1000, Process: 1, Recorder: traces.RecorderKineto, Ranks: []traces.Rank{{Process: 1, Rank: rank, Source: "distributedInfo"}}}
		return traces.NewTrace(h, fixtures.Launched(1, 10, 20, 30, 40))
	}
	m := fixtures.Must(traces.Merge([]*traces.Trace{one(1), one(0)}, []string{"a", "b"}))(t)
	if m.Header.Clock.Aligned == "" {
		t.Error("how the clocks are aligned is not said")
	}
	path := filepath.Join(t.TempDir(), "rank9.json") // the name does not count
	file := fixtures.Write(t, m.Header, m.Events)
	fixtures.Check(t, os.WriteFile(path, file, 0o666))
	again := fixtures.Must(Load(path))(t)
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

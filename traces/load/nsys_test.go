package load

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/tables"
)

// sqlite makes an export out of statements.
func sqlite(t *testing.T, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a trace?#%41.sqlite") // a name that means something in an address
	db := require.Value(sql.Open("sqlite", filepath.Join(t.TempDir(), "trace.sqlite")))(t)
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	var from string
	require.NoError(t, db.QueryRow("SELECT file FROM pragma_database_list").Scan(&from))
	require.NoError(t, errors.Join(db.Close(), os.Rename(from, path)))
	return path
}

// modern is a capture with a step in eager mode, one that is captured and replayed twice, and a kernel outside passes.
var modern = []string{
	`CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)`,
	`INSERT INTO StringIds VALUES (1,'wte+wpe'),(2,'cudaLaunchKernelExC_v11060'),(3,'embed(float*)'),(4,'cuLaunchKernel'),(5,'decode step'),
		(6,'cudaStreamBeginCapture_v10000'),(7,'cudaStreamEndCapture_v10000'),(8,'cudaGraphLaunch_v10000'),(9,'h.2@1.ln_1+h.2@1.attn.c_attn'),(10,'main'),(11,'embed'),(12,'flush')`,
	`CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)`,
	`INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_NAME','NVIDIA Nsight Systems'),('EXPORT_PRODUCT_VERSION','2025.3'),('EXPORT_SCHEMA_VERSION','3.20.3')`,
	`CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)`,
	`INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:COMMAND','/home/x/infer'),('PROCESS_0:ARGUMENT_0','-n'),('PROCESS_0:ARGUMENT_1','8'),('PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE','Node')`,
	`CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)`,
	`INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1795240732022067190)`,
	`CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, totalMemory INTEGER, computeMajor INTEGER, computeMinor INTEGER, cuDevice INTEGER)`,
	`INSERT INTO TARGET_INFO_GPU VALUES (4, 'NVIDIA H200', 132, 150109880320, 9, 0, 0)`,
	`CREATE TABLE ThreadNames (nameId INTEGER, globalTid INTEGER)`,
	`INSERT INTO ThreadNames VALUES (10, 700<<24|701)`,
	`CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, int64Value INTEGER)`,
	`INSERT INTO NVTX_EVENTS VALUES
		(5,NULL,75,NULL,NULL,'gpt2scope',700<<24|701,NULL,NULL,1,NULL),
		(6,NULL,33,NULL,2,'Embed',700<<24|701,NULL,NULL,1,NULL),
		(7,NULL,33,NULL,3,'Linear',700<<24|701,NULL,NULL,1,NULL),
		(8,NULL,34,NULL,NULL,'first token',700<<24|701,NULL,NULL,0,NULL),
		(10,90,59,NULL,NULL,'load',700<<24|701,NULL,NULL,1,NULL),
		(95,2000,60,1,NULL,'request',700<<24|701,700<<24|702,NULL,0,NULL),
		(100,200,59,NULL,1,NULL,700<<24|701,NULL,5,1,17),
		(110,150,59,NULL,2,NULL,700<<24|701,NULL,1,1,NULL),
		(155,190,59,NULL,NULL,'h.2@1',700<<24|701,NULL,NULL,1,NULL),
		(160,180,59,NULL,3,NULL,700<<24|701,NULL,9,1,NULL),
		(300,400,59,NULL,NULL,'record graph',700<<24|701,NULL,NULL,1,NULL),
		(301,390,59,NULL,1,NULL,700<<24|701,NULL,5,1,NULL),
		(310,330,59,NULL,2,NULL,700<<24|701,NULL,1,1,NULL),
		(340,350,59,NULL,3,NULL,700<<24|701,NULL,9,1,NULL),
		(500,520,59,NULL,1,NULL,700<<24|701,NULL,5,1,18),
		(530,550,59,NULL,1,NULL,700<<24|701,NULL,5,1,19),
		(900,NULL,59,NULL,NULL,'wte+wpe',700<<24|701,NULL,NULL,0,NULL)`,
	`CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER)`,
	`INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
		(20,30,0,700<<24|701,1,2,0), (120,130,0,700<<24|701,2,2,0), (165,170,1,700<<24|701,3,4,0),
		(305,306,0,700<<24|701,4,6,0), (312,320,0,700<<24|701,5,2,0), (342,345,1,700<<24|701,6,4,0), (360,370,0,700<<24|701,7,7,0),
		(505,510,0,700<<24|701,8,8,0), (535,540,0,700<<24|701,9,8,0)`,
	`CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,
		registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER)`,
	`INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
		(40,50,0,1,7,1,700<<24,3,11, 40,1,1,1, 32,1,1, 0,0, NULL),
		(600,700,0,1,7,2,700<<24,3,11, 40,192,2,1, 64,1,1, 64,4608, NULL),
		(690,800,0,1,7,3,700<<24,3,11, 41,1,1,1, 32,1,1, 0,0, NULL),
		(1000,1100,0,1,7,8,700<<24,3,11, 40,1,1,1, 32,1,1, 0,0, 8589934592),
		(1100,1200,0,1,7,8,700<<24,3,11, 40,1,1,1, 32,1,1, 0,0, 8589934593),
		(1300,1400,0,1,7,9,700<<24,3,11, 40,1,1,1, 32,1,1, 0,0, 8589934592),
		(1400,1500,0,1,7,9,700<<24,3,11, 40,1,1,1, 32,1,1, 0,0, 8589934593)`,
	`CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER)`,
	`INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (315,315,700<<24|701,1,4294967296,NULL), (343,343,700<<24|701,1,4294967297,NULL),
		(380,380,700<<24|701,1,8589934592,NULL), (381,381,700<<24|701,1,8589934592,4294967296), (382,382,700<<24|701,1,8589934593,NULL), (383,383,700<<24|701,1,8589934593,4294967297)`,
	`CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER)`,
	`INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (60,61,0,1,8,77,700<<24,768,1,0,2,NULL)`,
	`CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, memKind INTEGER)`,
	`INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (62,63,0,1,8,78,700<<24,32,2)`,
	`CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER)`,
	`INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (64,70,0,1,4294967295,79,700<<24,4)`,
	`CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER)`,
	`INSERT INTO PROFILER_OVERHEAD VALUES (1,9999,700<<24|702,12)`,
}

func TestNsys(t *testing.T) {
	tr := require.Value(Load(sqlite(t, modern...)))(t)
	h := tr.Header
	if h.Tool != "NVIDIA Nsight Systems" || h.Release != "2025.3" || h.Recorder != traces.RecorderNsys ||
		h.Base != 1795240732022067190 || !slices.Equal(h.Command, []string{"infer", "-n", "8"}) {
		t.Errorf("header %+v", h)
	}
	if want := []traces.Device{{ID: 0, Name: "NVIDIA H200", Compute: "9.0", SMs: 132,
		Memory: 150109880320}}; !slices.Equal(h.Devices, want) {
		t.Errorf("devices %+v", h.Devices)
	}
	if want := []traces.LaneName{{Lane: traces.Thread(700, 701), Name: "main"}}; !slices.Equal(h.Lanes, want) {
		t.Errorf("lanes %v", h.Lanes)
	}
	plans := []traces.Plan{{Phase: "decode step", Steps: []traces.Step{{Tag: 0, Name: "wte+wpe", Op: "Embed", Layer: -1,
		Slot: -1}, {Tag: 1, Name: "h.2@1.ln_1+h.2@1.attn.c_attn", Op: "Linear", Layer: 2, Slot: 1}}}}
	if !reflect.DeepEqual(h.Plans, plans) {
		t.Errorf("plans %+v", h.Plans)
	}
	find := func(kind traces.Kind, time int64) traces.Event {
		i := slices.IndexFunc(tr.Events, func(e traces.Event) bool { return e.Kind == kind && e.Time == time })
		if i < 0 {
			t.Fatalf("there is no %s at %d", kind, time)
		}
		return tr.Events[i]
	}
	passes := map[int64]traces.Event{}
	for _, at := range []int64{100, 500, 530} {
		passes[at] = find(traces.KindPass, at)
	}
	if p := passes[100]; p.Value != 17 || p.Plan != 0 || p.Domain != traces.Domain ||
		find(traces.KindRange, 95).ID != p.Parent {
		t.Errorf("pass %+v", p)
	}
	// Each kernel's step, and the range of its launch.
	for at, want := range map[int64]struct {
		tag    int32
		parent uint64
	}{
		40: {-1, find(traces.KindRange, 10).ID}, 600: {0, find(traces.KindStep, 110).ID}, 690: {1, find(traces.KindStep, 160).ID},
		1000: {0, passes[500].ID}, 1100: {1, passes[500].ID}, 1300: {0, passes[530].ID}, 1400: {1, passes[530].ID},
	} {
		if k := find(traces.KindKernel, at); k.Step != want.tag || k.Parent != want.parent {
			t.Errorf("the kernel at %d has tag %d and lies in %d, not %d and %d", at, k.Step, k.Parent, want.tag, want.parent)
		}
	}
	k := find(traces.KindKernel, 600)
	if k.Grid != [3]int32{192, 2, 1} || k.Block != [3]int32{64, 1, 1} || k.Registers != 40 || k.StaticShared != 64 ||
		k.DynamicShared != 4608 {
		t.Errorf("kernel %+v", k)
	}
	context := traces.Lane{Kind: traces.LaneSync, Device: 0, Process: 700, Context: 1, ID: -1}
	for want, e := range map[string]traces.Event{
		fmt.Sprint("embed(float*) 0 0 false ", traces.Stream(700, 0, 1, 7)): k,
		fmt.Sprint("cudaLaunchKernelExC 0 0 false ", traces.API(700, 701)):  find(traces.KindRuntime, 120),
		fmt.Sprint("cuLaunchKernel 1 0 false ", traces.API(700, 701)):       find(traces.KindDriver, 165),
		fmt.Sprint("Memcpy HtoD (Pageable -> Device) -1 768 false ", traces.Stream(700, 0, 1, 8)): find(traces.KindMemcpy,
			60),
		fmt.Sprint("Memset (Device) -1 32 false ", traces.Stream(700, 0, 1, 8)): find(traces.KindMemset, 62),
		fmt.Sprint("Context Sync -1 0 false ", context):                         find(traces.KindSync, 64),
		fmt.Sprint("wte+wpe -1 0 true ", traces.Thread(700, 701)):               find(traces.KindRange, 900),
		fmt.Sprint("first token -1 0 false ", traces.Thread(700, 701)):          find(traces.KindMark, 8),
	} {
		if got := fmt.Sprint(e.Name, " ", e.Step, " ", e.Bytes, " ", e.Open, " ", e.Lane); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	find(traces.KindOverhead, 1)
	want := traces.Attribution{Kernels: 7, Copies: 2, Calls: 9, Ranges: 13, Passes: 4, Steps: 4, CopiesWithoutCall: 2,
		InSteps: 6, GraphLaunches: 2, OpenRanges: 1}
	if tr.Attribution != want {
		t.Errorf("counts\n%+v, not\n%+v", tr.Attribution, want)
	}

	// The steps of a stream lie over their kernels.
	steps := traces.Project(h, tr.Events)
	if len(steps) != 6 || steps[0].Time != 600 || steps[0].Duration != 100 || steps[0].Name != "wte+wpe" ||
		steps[1].Time != 690 || steps[1].Lane != k.Lane {
		t.Errorf("steps of the stream: %+v", steps)
	}
	all := append(steps, tr.Events...)
	traces.Sort(all)
	file := fixtures.Write(t, h, all)
	path := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(path, file, 0o666))
	again, err := Load(path)
	if err != nil || !reflect.DeepEqual(again.Events, all) || again.Attribution != want ||
		traces.Project(h, again.Events) != nil {
		t.Errorf("converted, the counts are %+v, error %v", again.Attribution, err)
	}
}

// TestNsysOld: earlier versions lack columns and tables; graphs may be recorded whole.
func TestNsysOld(t *testing.T) {
	tr := require.Value(Load(sqlite(t,
		`CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)`,
		`INSERT INTO StringIds VALUES (1,'cudaLaunchKernel_v7000'),(2,'gemm'||replace(hex(zeroblob(9000)),'0','x')),(3,'cuLaunchKernel'),(4,'cudaGraphLaunch_v10000')`,
		`CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)`,
		`INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE','Graph')`,
		`CREATE TABLE DIAGNOSTIC_EVENT (text TEXT)`,
		`INSERT INTO DIAGNOSTIC_EVENT VALUES ('Not all CUDA events might have been collected.'), ('Profiling has started.')`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER)`,
		`INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10,20,700<<24|701,1,1), (30,40,700<<24|701,2,3), (50,60,700<<24|701,3,4), (70,80,700<<24|701,4,1)`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, shortName INTEGER)`,
		`INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5,30,0,7,1,2), (30,50,0,7,2,2), (60,70,0,7,NULL,2), (80,90,0,7,99,2), (95,94,0,7,1,2)`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER)`,
		`INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100,200,0,1,7,3,700<<24)`,
		`CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER)`,
		`INSERT INTO NVTX_EVENTS VALUES ('abc', x'00', 59, 7, 'x')`)))(t)
	// Without a process, kernels are those of the only one.
	want := traces.Attribution{Kernels: 4, Graphs: 1, Calls: 4, Ranges: 1, WithoutCorrelation: 1, WithoutCall: 1,
		WithoutRange: 2, LaunchesWithoutWork: 1, GraphLaunches: 1, OpenRanges: 1, EarlyStarts: 1, Earliest: 5}
	if tr.Attribution != want {
		t.Errorf("counts\n%+v, not\n%+v", tr.Attribution, want)
	}
	long := "gemm" + strings.Repeat("x", 18000) // which goes on in other pages of the file
	if !slices.ContainsFunc(tr.Events, func(e traces.Event) bool { return e.Name == long }) {
		t.Error("a long name is not whole")
	}
	findings := ""
	for _, f := range traces.Examine(tr.Header, tr.Attribution) {
		findings += f.Text + "\n"
	}
	fixtures.Says(t, "", findings, "1 record was dropped: events with an impossible time",
		"nsys says: Not all CUDA events", "1 kernel has no correlation id", "1 kernel has a correlation id that no API call has",
		"1 range never ended", "by up to 5 ns", "not recorded: nodes of CUDA graphs", "outside all ranges")
}

// TestNsysVersions: tables whose names have the number of a version, rows in any order, and options that name no process.
func TestNsysVersions(t *testing.T) {
	tr := require.Value(Load(sqlite(t,
		`CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)`,
		`INSERT INTO StringIds VALUES (1,'cudaLaunchKernel_v7000'),(2,'gemm')`,
		`CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)`,
		`INSERT INTO META_DATA_CAPTURE VALUES ('CUDA_GRAPH_TRACE_OPTIONS:MODE','Graph'), ('PROCESS_0:COLLECT_CUDA_TRACE','false')`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME_V2 (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER)`,
		`INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME_V2 VALUES (30,40,700<<24|701,2,1), (10,20,700<<24|701,1,1)`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V3 (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, shortName INTEGER)`,
		`INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL_V3 VALUES (50,60,0,7,2,2), (30,45,0,7,1,2)`)))(t)
	if a := tr.Attribution; a.Kernels != 2 || a.Calls != 2 || a.WithoutCall+a.EarlyStarts != 0 || tr.Events[0].Time != 10 {
		t.Errorf("%+v", a)
	}
	not := strings.Join(tr.Header.NotRecorded, "\n")
	if strings.Contains(not, "kernels") || !strings.Contains(not, "nodes of CUDA graphs") {
		t.Errorf("not recorded: %s", not)
	}
	_, err := Load(sqlite(t, `CREATE TABLE StringTable (_id_ INTEGER, value TEXT)`, `CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start INTEGER)`))
	if err == nil || !strings.Contains(err.Error(), "a database of nvprof") {
		t.Errorf("a database of nvprof: %v", err)
	}
}

// TestDiagnostics: the number of events that nsys collected decides whether any are missing,
// not its warning, which it gives of nearly every capture.
func TestDiagnostics(t *testing.T) {
	whole := require.Value(os.ReadFile("../samples/graph.sqlite"))(t)
	const (
		doubtCUDA, doubtNVTX = "Not all CUDA events might have been collected.", "Not all NVTX events might have been collected."
		wholeCUDA            = "nsys says that not all CUDA events might have been collected; the export has all 341 that " +
			"it counted"
		wholeNVTX = "nsys says that not all NVTX events might have been collected; the export has all 52 that " +
			"it counted"
	)
	collected := func(kind string, n int) string { return fmt.Sprintf("Number of %s events collected: \t%d.", kind, n) }
	for name, c := range map[string]struct {
		texts    []string // of the process that has the events
		others   []string // of a process that has none
		change   string
		notes    []string
		misleads string
	}{
		"all there":           {texts: []string{doubtCUDA, doubtNVTX, collected("CUDA", 92+17+3+229), collected("NVTX", 52)}, notes: []string{wholeCUDA, wholeNVTX}},
		"no warning":          {texts: []string{collected("CUDA", 92+17+3+229), collected("NVTX", 52)}},
		"events counted too":  {texts: []string{doubtCUDA, collected("CUDA", 92+17+3+229+32)}, notes: []string{"the export has all 373 that it counted"}},
		"categories counted":  {texts: []string{doubtNVTX, collected("NVTX", 59)}, notes: []string{"the export has all 59 that it counted"}},
		"separators":          {texts: []string{doubtCUDA, "Number of CUDA events collected: 1,341."}, misleads: "nsys collected 1,341 CUDA events of process"},
		"kernels missing":     {texts: []string{doubtCUDA, collected("CUDA", 92+17+3+229)}, change: "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid <= 3", misleads: "nsys collected 341 CUDA events of process"},
		"ranges missing":      {texts: []string{doubtNVTX, collected("NVTX", 52)}, change: "DELETE FROM NVTX_EVENTS WHERE eventType = 59 AND rowid % 5 = 0", misleads: "nsys collected 52 NVTX events of process"},
		"nothing counted":     {texts: []string{doubtCUDA}, misleads: doubtCUDA},
		"a process without":   {texts: []string{collected("CUDA", 92+17+3+229)}, others: []string{doubtCUDA, doubtNVTX, "No CUDA events collected. Does the process use CUDA?"}},
		"another process has": {texts: nil, others: []string{collected("CUDA", 5)}, misleads: "the export has at most 0 of them"},
		"said to be dropped":  {texts: []string{collected("CUDA", 92+17+3+229), "12 events were dropped."}, misleads: "nsys says: 12 events were dropped."},
	} {
		path := filepath.Join(t.TempDir(), "run.sqlite")
		require.NoError(t, os.WriteFile(path, whole, 0o666))
		db := require.Value(sql.Open("sqlite", path))(t)
		execute := func(statement string, args ...any) {
			if _, err := db.Exec(statement, args...); err != nil {
				t.Fatalf("%s: %s: %v", name, statement, err)
			}
		}
		execute("CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, text TEXT, globalPid INTEGER)")
		for _, text := range c.texts {
			execute("INSERT INTO DIAGNOSTIC_EVENT SELECT 1, ?, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1", text)
		}
		for _, text := range c.others {
			execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, ?, 999 << 24)", text)
		}
		if c.change != "" {
			execute(c.change)
		}
		require.NoError(t, db.Close())
		tr, err := Load(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		misleading := ""
		for _, f := range traces.Examine(tr.Header, tr.Attribution) {
			if f.Misleads {
				misleading += f.Text + "\n"
			}
		}
		if c.misleads == "" && misleading != "" || !strings.Contains(misleading, c.misleads) {
			t.Errorf("%s: shares mislead because of %q, not %q", name, misleading, c.misleads)
		}
		notes := strings.Join(tr.Header.Notes, "\n")
		if len(tr.Header.Notes) != len(c.notes) {
			t.Errorf("%s: notes %q, not %q", name, notes, c.notes)
		}
		fixtures.Says(t, name, notes, c.notes...)
		again, err := Source{Path: "again", Stream: bytes.NewReader(fixtures.Write(t, tr.Header, tr.Events))}.Load()
		if err != nil || !slices.Equal(again.Header.Notes, tr.Header.Notes) {
			t.Errorf("%s: written and read again, the notes are %q, error %v", name, again.Header.Notes, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
		return path
	}
	for path, fact := range map[string]string{
		filepath.Join(dir, "absent"): "no such file",
		dir:                          "is a directory",
		file("empty", ""):            "is empty",
		file("text", "hello"):        "not a trace",
		file("broken.sqlite", traces.SQLite+"xxxx"):                                                "not a readable export of Nsight Systems",
		sqlite(t, `CREATE TABLE a (b INTEGER)`):                                                    "no table StringIds",
		sqlite(t, modern[0], modern[1], modern[14][:strings.Index(modern[14], ", globalTid")]+")"): "has no column globalTid",
	} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), fact) || !strings.Contains(err.Error(), path) ||
			strings.Count(err.Error(), path) != 1 {
			t.Errorf("error %v, which should name %s and say %q", err, path, fact)
		}
	}
}

// TestSqliteCutOff: an export that is shorter than its header says is refused, also if SQLite
// would read what is left without an error.
func TestSqliteCutOff(t *testing.T) {
	whole := require.Value(os.ReadFile("../samples/eager.sqlite"))(t)
	path := filepath.Join(t.TempDir(), "cut.sqlite")
	for _, cut := range []int{1, 60, len(whole) / 2} {
		require.NoError(t, os.WriteFile(path, whole[:len(whole)-cut], 0o666))
		want := fmt.Sprintf("%s is cut off: its header says %d bytes, and it has %d", path, len(whole), len(whole)-cut)
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "nsys export") {
			t.Errorf("cut by %d bytes: error %v, not %q", cut, err, want)
		}
	}
	journal := path + "-journal"
	require.NoError(t, os.WriteFile(path, whole, 0o666))
	require.NoError(t, os.WriteFile(journal, []byte("changes"), 0o666))
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), filepath.Base(journal)) {
		t.Errorf("beside a journal: error %v, which should name it", err)
	}
	require.NoError(t, os.Remove(journal))
	// SQLite ignores the number of pages if the change counters differ, and more than it.
	stale := slices.Clone(whole)
	stale[28], stale[27] = 1, stale[27]+1
	for name, file := range map[string][]byte{"a stale number of pages": stale,
		"bytes after the last page": append(slices.Clone(whole), make([]byte, 4096)...)} {
		require.NoError(t, os.WriteFile(path, file, 0o666))
		if _, err := Load(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDamagedSqlite: a damaged export is read or refused in words.
func TestDamagedSqlite(t *testing.T) {
	whole := require.Value(os.ReadFile("../samples/eager.sqlite"))(t)
	r := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "damaged.sqlite")
	refused := 0
	for range 60 {
		damaged := slices.Clone(whole)
		if r.IntN(3) == 0 {
			damaged = damaged[:100+r.IntN(len(damaged)-100)]
		}
		for range 1 + r.IntN(20) {
			damaged[100+r.IntN(len(damaged)-100)] = byte(r.Uint32())
		}
		require.NoError(t, os.WriteFile(path, damaged, 0o666))
		tr, err := Load(path)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error %v does not name the file", err)
			}
			continue
		}
		traces.Examine(tr.Header, tr.Attribution)
		tables.Summarize(tr, tables.ByStage, -1)
	}
	if refused == 0 || refused == 60 {
		t.Errorf("%d of 60 damaged files are refused", refused)
	}
}

// TestMetricsOfGPUs: the low byte of a sample's type is the GPU, which has another number in CUDA. A metric that is
// always 0 is left out.
func TestMetricsOfGPUs(t *testing.T) {
	tr := require.Value(Load(sqlite(t, slices.Concat(modern, []string{
		`INSERT INTO TARGET_INFO_GPU VALUES (5, 'NVIDIA H200', 132, 150109880320, 9, 0, 1)`,
		`CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, metricId INTEGER, metricName TEXT)`,
		`INSERT INTO TARGET_INFO_GPU_METRICS VALUES (0x104,1,'SMs Active'),(0x105,1,'SMs Active'),(0x105,2,'idle')`,
		`CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER)`,
		`INSERT INTO GPU_METRICS VALUES (10,0x104,1,40),(10,0x105,1,50),(10,0x105,2,0)`,
	})...)))(t)
	got := map[int32]float64{}
	for _, e := range tr.Events {
		if e.Kind == traces.KindCounter {
			got[e.Lane.Device] += e.Value
		}
	}
	if len(got) != 2 || got[0] != 40 || got[1] != 50 {
		t.Errorf("the GPUs have the samples %v", got)
	}
}

// TestMemory: allocations of a GPU's memory become what is held over time, in exports of nsys and in files of PyTorch;
// there the names of mark_kernels are stages.
func TestMemory(t *testing.T) {
	held := func(tr *traces.Trace) (values []float64) {
		for _, e := range tr.Events {
			if e.Kind == traces.KindCounter && e.Name == traces.MemoryAllocated {
				values = append(values, e.Value)
			}
		}
		return values
	}
	tr := require.Value(Load(sqlite(t, slices.Concat(modern, []string{
		`CREATE TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER (id INTEGER, name TEXT)`,
		`INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (0,'ALLOCATION'),(1,'DEALLOCATION')`,
		`CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, deviceId INTEGER, bytes INTEGER, memoryOperationType INTEGER, memKind INTEGER, globalPid INTEGER)`,
		`INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (30,0,100,1,2,1<<24),(10,0,100,0,2,1<<24),(15,0,30,0,2,2<<24),(20,0,50,0,2,1<<24),(25,0,7,0,1,1<<24)`,
	})...)))(t)
	if got := held(tr); !slices.Equal(got, []float64{100, 30, 150, 50}) {
		t.Errorf("processes hold %v on the GPU", got)
	}
	if m := require.Value(tables.Summarize(tr, tables.ByMemory, -1))(t).Memory; len(m) != 2 || m[0].Process != 1 || m[0].Peak != 150 || m[1].Process != 2 || m[1].Peak != 30 {
		t.Errorf("two processes: %+v", m)
	}

	var file strings.Builder
	file.WriteString(`{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"GPU","totalGlobalMem":1000}],"baseTimeNanoseconds":1,"traceEvents":[`)
	for i := range 4 {
		at := 100 * i
		fmt.Fprintf(&file, `{"ph":"X","cat":"cuda_runtime","name":"cudaGraphLaunch","pid":1,"tid":1,"ts":%d,"dur":5,"args":{"correlation":%d}},`, at, i+1)
		for k, name := range []string{"layers.0.attention", "layers.0.mlp", "layers.0.mlp"} {
			fmt.Fprintf(&file, `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":10,"args":{"device":0,"stream":7,"correlation":%d,"graph node id":%d,"name":"%s"}},`, at+10+20*k, i+1, k+1, name)
		}
		fmt.Fprintf(&file, `{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":%d,"args":{"Total Reserved":900,"Total Allocated":%d,"Bytes":1,"Device Id":0,"Device Type":1}},`, at+1, 100*(i+1))
		fmt.Fprintf(&file, `{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":%d,"args":{"Total Allocated":7,"Device Id":-1,"Device Type":0}},`, at+2)
	}
	path := filepath.Join(t.TempDir(), "run.json")
	require.NoError(t, os.WriteFile(path, []byte(strings.TrimSuffix(file.String(), ",")+"]}"), 0o666))
	tr = require.Value(Load(path))(t)
	if got := held(tr); !slices.Equal(got, []float64{100, 200, 300, 400}) {
		t.Errorf("PyTorch holds %v", got)
	}
	table := require.Value(tables.Summarize(tr, tables.ByMemory, -1))(t)
	if m := table.Memory; len(m) != 2 || m[0].Name != traces.MemoryReserved || m[0].Percent != 90 || m[1].Peak != 400 || m[1].PeakAt != 301_000 || m[1].During != "cudaGraphLaunch" || m[1].Changes != 3 {
		t.Errorf("%+v", m)
	}
	if !stages.OfRanges(tr, nil) {
		t.Fatal("the names of kernels in the graph make no stages")
	}
	by := require.Value(tables.Summarize(tr, tables.ByStage, -1))(t)
	for name, kernels := range map[string]int{"layers.0.attention": 4, "layers.0.mlp": 8} {
		if i := slices.IndexFunc(by.Rows, func(r tables.Row) bool { return r.Name == name }); i < 0 || by.Rows[i].Kernels != kernels || by.Rows[i].Exclusive != 10_000*int64(kernels) {
			t.Errorf("%s: %+v", name, by.Rows)
		}
	}
}

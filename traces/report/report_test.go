package report

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/load"
	ranged "gpt2scope/traces/stages"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// written gives the page of a trace.
func written(t *testing.T, tr *traces.Trace) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, tr, Options{Name: "run.json", Device: -1}))
	return strings.ReplaceAll(b.String(), nbsp, " ")
}

// TestSays has the facts of a recording on the page.
func TestSays(t *testing.T) {
	page := written(t, withCosts(t))
	fixtures.Says(t, "", page, "GPU of a test", "compute capability 9.0", "recording made a decode step 15.0 % longer: 23.0 us, 20.0 us", "50.0 ±", "mJ per token", "total energy counter", "with a known floor took", "Shares can be trusted", "roofline %")
	page = written(t, samples.Load(t, "graph.sqlite"))
	fixtures.Says(t, "", page, "most of it because of loading code: 5.135 ms (89.0 %)", "There is no roofline", "NVIDIA H200", "what recording cost was not measured")
}

// TestCPU has nothing on the page of a CPU that only a GPU has.
func TestCPU(t *testing.T) {
	page, gpu := written(t, host(t)), written(t, samples.Load(t, "eager.sqlite"))
	if strings.Contains(page, "host and device agree") {
		t.Error("a recording without a device says how far its clock agrees with that of the device")
	}
	for _, text := range []string{`id="indicators"`, `data-key="host"`, "launch latency"} {
		if strings.Contains(page, text) || !strings.Contains(gpu, text) {
			t.Errorf("%q: on the page of a CPU %v, of a GPU %v", text, strings.Contains(page, text), strings.Contains(gpu, text))
		}
	}
}

// TestSentence names the stage that took the most over all layers, not the longest of one layer; the bar has its share.
func TestSentence(t *testing.T) {
	step := func(name string, ns int64) tables.Row {
		return tables.Row{Kind: tables.RowWork, Phase: "decode step", Name: name, Exclusive: ns}
	}
	table := &tables.Table{Window: &window.Window{Trace: &traces.Trace{Header: &traces.Header{}}}, By: tables.ByStage, Device: -1, Wall: 1000, Rows: []tables.Row{step("h.0.mlp.c_fc", 140), step("h.1.mlp.c_fc", 140), step("lm_head", 200), step("h.0.ln_1", 20),
		{Kind: tables.RowIdle, Name: tables.IdleThreads, Exclusive: 500}}}
	rows := stages(table)
	if got := strings.ReplaceAll(sentence(table, rows), nbsp, " "); got != "Of 1.0 µs, the CPU worked for 500 ns (50.0 %) and was idle for 500 ns (50.0 %), because of synchronisation between threads. "+
		"The stage that took the most is h.N.mlp.c_fc of the decode step, over 2 layers: 280 ns (28.0 %)." {
		t.Errorf("the summary is %q", got)
	}
	table.Rows = append(table.Rows, tables.Row{Kind: tables.RowIdle, Name: tables.IdleHost, Exclusive: 500}) // half of it is not most of it
	if got := strings.ReplaceAll(sentence(table, stages(table)), nbsp, " "); !strings.Contains(got, ", the largest part of it because of synchronisation between threads: 500 ns") {
		t.Errorf("the summary with two causes of idle time is %q", got)
	}
	// Kernels of one name are one, whatever their launch shape.
	kernels := &tables.Table{Window: &window.Window{Trace: &traces.Trace{Header: &traces.Header{}}}, By: tables.ByKernel, Wall: 100, Rows: []tables.Row{{Kind: tables.RowWork, Name: "a", Exclusive: 40, Shape: &tables.Shape{}}, {Kind: tables.RowWork, Name: "b", Exclusive: 30},
		{Kind: tables.RowWork, Name: "b", Exclusive: 30, Shape: &tables.Shape{Registers: 40}}}}
	if got := sentence(kernels, stages(kernels)); !strings.HasSuffix(strings.ReplaceAll(got, nbsp, " "), "The kernel that took the most is b: 60 ns (60.0 %).") {
		t.Errorf("the summary of kernels is %q", got)
	}
	// A pass without stages is one stage of the same name, which is said once.
	pass := &tables.Table{Window: &window.Window{Trace: &traces.Trace{Header: &traces.Header{}}}, By: tables.ByStage, Wall: 100, Rows: []tables.Row{{Kind: tables.RowWork, Phase: "forward", Name: "forward", Exclusive: 100}}}
	if got := sentence(pass, stages(pass)); !strings.Contains(strings.ReplaceAll(got, nbsp, " "), "The stage that took the most is forward: 100 ns") {
		t.Errorf("the summary of a pass without stages is %q", got)
	}
	// Operations of several threads overlap: what is outside all of them is no sum.
	op := func(thread, from, ns int64) traces.Event {
		return traces.Plain(traces.KindOp, traces.Thread(1, thread), "add", from, ns)
	}
	ops := require.Value(tables.SummarizeAny(fixtures.Trace(&traces.Header{}, op(5, 0, 60), op(6, 30, 60), op(5, 900, 100)), -1))(t)
	if got := strings.ReplaceAll(sentence(ops, stages(ops)), nbsp, " "); !strings.HasPrefix(got, "Of 1.0 µs, 220 ns (22.0 %) are inside operations of several threads, 810 ns (81.0 %) outside all. ") {
		t.Errorf("the summary of operations is %q", got)
	}
	// Copies are named where they took more than the kernels of any stage.
	bad := samples.Load(t, "pytorch/bad.sqlite")
	ranged.OfRanges(bad, nil)
	table2 := require.Value(tables.SummarizeAny(bad, -1))(t)
	copies := stages(table2)
	if got := sentence(table2, copies); !strings.Contains(strings.ReplaceAll(got, nbsp, " "),
		"What took the most are copies: Memcpy HtoD (Pageable -> Device), 12.939 ms (40.7 %), most of it in self of the forward.") {
		t.Errorf("the summary is %q", got)
	}
	if i := slices.IndexFunc(segments(copies), func(s segment) bool { return s.Name == "copies and sets" }); i < 0 ||
		segments(copies)[i].NS != 12_999_388 {
		t.Errorf("the bar has no part of copies: %+v", segments(copies))
	}
	graph := require.Value(tables.SummarizeAny(samples.Load(t, "gpt2-L12-graph-cupti.json.gz"), -1))(t)
	if got := strings.ReplaceAll(sentence(graph, stages(graph)), nbsp, " "); !strings.Contains(got, "The counter of GPU utilisation says 9 %: it is the driver's") {
		t.Errorf("the driver's utilisation is not explained: %q", got)
	}
	var names []string
	for _, s := range segments(rows) {
		names = append(names, fmt.Sprint(s.Name, " ", s.NS, " ", s.X, " ", s.Width))
	}
	if want := []string{"h.N.mlp.c_fc 280 0.000 28.000", "lm_head 200 28.000 20.000", "h.0.ln_1 20 48.000 2.000", "idle 500 50.000 50.000"}; !slices.Equal(names, want) {
		t.Errorf("the bar is %q, not %q", names, want)
	}
}

// TestTwins: tracks that have one name are told apart, and those of one process do not name it.
func TestTwins(t *testing.T) {
	for _, name := range []string{"pytorch/two.sqlite", "pytorch/kineto.json.gz", "eager.sqlite"} {
		tr, seen := samples.Load(t, name), map[string]bool{}
		line := newTimeline(tr, require.Value(tables.Summarize(tr, tables.ByKernel, -1))(t), nil)
		for _, counter := range line.Series {
			if seen[counter.Title] {
				t.Errorf("%s: a counter is called %q", name, counter.Title)
			}
			seen[counter.Title] = true
		}
		for _, track := range line.Tracks {
			if seen[track.Title] || name == "pytorch/kineto.json.gz" && strings.Contains(track.Title, "process ") {
				t.Errorf("%s: a track is called %q", name, track.Title)
			}
			seen[track.Title] = true
		}
	}
	twins := &timeline{Tracks: []*track{{Title: "python3", lane: traces.Thread(1, 5)}, {Title: "python3", lane: traces.Thread(1, 6)}, {Title: "stream 7", lane: traces.Lane{Kind: traces.LaneStream, Context: 2, ID: 7}}, {Title: "stream 7", lane: traces.Lane{Kind: traces.LaneStream, Context: 3, ID: 7}}}}
	twins.nameTwins()
	for i, want := range []string{"python3, thread 5", "python3, thread 6", "stream 7, context 2", "stream 7, context 3"} {
		if twins.Tracks[i].Title != want {
			t.Errorf("track %d is %q, not %q", i, twins.Tracks[i].Title, want)
		}
	}
}

// TestSegments joins the stages that took the least, so that each colour of the bar has one name.
func TestSegments(t *testing.T) {
	table := &tables.Table{By: tables.ByStage}
	for i := range 17 {
		ns := int64(180 - 10*i)
		table.Rows = append(table.Rows, tables.Row{Kind: tables.RowWork, Name: fmt.Sprint("stage ", i), Exclusive: ns})
		table.Wall += ns
	}
	all := segments(stages(table))
	fills := map[string]bool{}
	var sum int64
	for _, s := range all {
		fills[s.Fill] = true
		sum += s.NS
	}
	if last := all[len(all)-1]; len(all) != 13 || len(fills) != 13 || last.Name != "5 others" || last.NS != 60+50+40+30+20 || sum != table.Wall {
		t.Errorf("the bar is %+v", all)
	}
}

// TestTooFast withholds the roofline % of a row that is faster than its least time, and says what that means.
func TestTooFast(t *testing.T) {
	tr := withCosts(t)
	before := written(t, tr)
	tr.Header.Ceilings[0].Value /= 100 // memory
	tr.Header.Ceilings[1].Value /= 100 // L2 cache
	page := written(t, tr)
	finding := regexp.MustCompile(`<p class="finding">ceilings: \d+ of \d+ rows with a floor are faster than it`)
	if finding.MatchString(before) || !finding.MatchString(page) {
		t.Error("the page does not say that rows are faster than their least time")
	}
	over := regexp.MustCompile(`title="limited by [a-z]+">(\d{4,}|[1-9]\d\d\.)`)
	if m := over.FindString(page); m != "" || strings.Contains(page, "with a known floor took") {
		t.Errorf("the page has %q", m)
	}
}

// A step is explained by its parts, whatever its layer.
func TestStageHelp(t *testing.T) {
	for name, want := range map[string]string{"h.N.residual_2+h.(N+1).ln_1": stageHelp("residual_2") + "; then " + stageHelp("ln_1"), "h.2@1.mlp.gelu": stageHelp("mlp.gelu"), "gemm": ""} {
		if got := stageHelp(name); got != want || name != "gemm" && got == "" {
			t.Errorf("%s is explained with %q", name, got)
		}
	}
}

// TestWithheld has no percentages where they would mislead.
func TestWithheld(t *testing.T) {
	tr := withCosts(t)
	tr.Header.Drop("kernels", 3)
	page := written(t, tr)
	if !strings.Contains(page, "Shares are withheld") || !strings.Contains(page, "3 records were dropped: kernels") {
		t.Error("the page does not say that shares are withheld")
	}
	sentence := regexp.MustCompile(`id="sentence">([^<]*)<`).FindStringSubmatch(page)
	if sentence == nil || strings.Contains(sentence[1], "%") {
		t.Errorf("the summary has shares: %v", sentence)
	}
	if strings.Contains(page, `class="share"`) {
		t.Error("a bar shows shares")
	}
	for _, cell := range regexp.MustCompile(`<td class="pc">([^<]*)</td>`).FindAllStringSubmatch(page, -1) {
		if cell[1] != "-" {
			t.Errorf("a share is given: %s", cell[1])
		}
	}
}

// TestSelfContained has no reference to anything outside.
func TestSelfContained(t *testing.T) {
	page := written(t, withCosts(t))
	if m := regexp.MustCompile(`(?i)<(link|img|iframe|script[^>]*\ssrc|object|embed|a\s)|@import|url\(|\ssrc=|\shref=`).FindString(page); m != "" {
		t.Errorf("the page has %q", m)
	}
	for _, m := range regexp.MustCompile(`https?://[^\s"'<]*`).FindAllString(page, -1) {
		if !strings.HasPrefix(m, "http://www.w3.org/2000/svg") { // a name, not an address
			t.Errorf("the page has %q", m)
		}
	}
	if !strings.Contains(page, `content="default-src &#39;none&#39;; style-src &#39;sha256-`) && !strings.Contains(page, `content="default-src 'none'; style-src 'sha256-`) {
		t.Error("the page has no policy")
	}
}

// TestEscapes has no markup of a name outside of attributes and the script's data.
func TestEscapes(t *testing.T) {
	page := written(t, hostile())
	for _, markup := range []string{"<img", "</script><", "<script>broken"} {
		if strings.Contains(page, markup) {
			t.Errorf("the page has %q", markup)
		}
	}
	if strings.Count(page, "<script") != 2 || strings.Count(page, "</script>") != 2 {
		t.Error("the page has not just its own two script elements")
	}
}

// TestKernels makes the page of a recording without passes by kernel.
func TestKernels(t *testing.T) {
	tr := require.Value(load.Load("../testdata/kineto.json"))(t)
	if page := written(t, tr); !strings.Contains(page, ">Kernel</button>") || !strings.Contains(page, `data-kind="work"`) {
		t.Error("the page is not by kernel")
	}
	empty := &traces.Trace{Header: &traces.Header{}}
	if err := Write(new(bytes.Buffer), empty, Options{Device: -1}); err == nil {
		t.Error("a page of nothing")
	}
}

// TestSize bounds the page of many events.
func TestSize(t *testing.T) {
	h := fixtures.Plan("h.0.attn.c_attn", "h.0.attn.sdpa", "lm_head")
	tr := fixtures.Trace(h, fixtures.Passes(h, 0, 2000, func(pass, _ int) int64 { return int64(500 + pass) }, nil)...)
	page := written(t, tr)
	n := len(tr.Events)
	t.Logf("%d events: %d bytes, %.1f a recorded event", n, len(page), float64(len(page))/float64(n))
	if n < 18_000 || len(page) > 40*n {
		t.Errorf("the page of %d events has %d bytes", n, len(page))
	}
}

// TestExtremes makes pages of events whose times, names and ids are anything.
func TestExtremes(t *testing.T) {
	const far = 1 << 61 // which the readers allow
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		run := newRun("a", "b")
		time := func() int64 { return []int64{-far, -1, 0, 1, 1000, r.Int64N(5000), r.Int64N(5000), far}[r.IntN(8)] }
		for range r.IntN(60) {
			lane := traces.Lane{Kind: traces.LaneKind(r.IntN(6)), Device: int32(r.IntN(3) - 1), ID: int64(r.IntN(3) - 1), Process: int64(r.IntN(2))}
			e := traces.Plain(traces.Kind(r.IntN(15)), lane, []string{"", "a", "cudaStreamSynchronize", evil}[r.IntN(4)], time(), max(0, time()))
			e.Plan, e.Step, e.Correlation, e.Value = int32(r.IntN(3)-1), int32(r.IntN(4)-1), []uint64{0, 1, 2, math.MaxUint64}[r.IntN(4)], math.Inf(r.IntN(3)-1)
			e.Open = r.IntN(8) == 0
			if e.Open {
				e.Duration = 0
			}
			e.Grid, e.Bytes, e.DynamicShared = [3]int32{math.MinInt32, 1, math.MaxInt32}, math.MinInt64, math.MaxInt32
			run.events = append(run.events, e)
		}
		run.header.Ceilings = []traces.Ceiling{{Name: "read", Unit: "GB/s", Value: math.Inf(1)}, {Name: "read", Unit: "GB/s", Value: 1e-300}, {Name: "f32", Unit: "TFLOP/s", Value: math.NaN()}, {Name: "x", Unit: "TFLOP/s", Value: 1e300}}
		run.header.Overhead = []traces.Overhead{{Baseline: math.NaN(), Recorded: math.Inf(1)}}
		run.header.Energy = []traces.Energy{{Millijoule: math.Inf(1), Tokens: -1}}
		tr := fixtures.Trace(&run.header, run.events...)
		var b bytes.Buffer
		if err := Write(&b, tr, Options{Device: -1}); err != nil && !strings.Contains(err.Error(), "no work") && !strings.Contains(err.Error(), "no pass") {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestCrowded has more events over each other than there are bands: all are there.
func TestCrowded(t *testing.T) {
	r := newRun("a")
	for i := range int64(500) {
		r.events = append(r.events, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", i, 1000))
	}
	tr := fixtures.Trace(&r.header, r.events...)
	table := require.Value(tables.Summarize(tr, tables.ByKernel, -1))(t)
	line := newTimeline(tr, table, nil)
	n := 0
	for _, b := range line.Tracks[0].Bands {
		n += len(b.Data) / 6
	}
	if len(line.Tracks) != 1 || len(line.Tracks[0].Bands) != maxBands || n != 500 {
		t.Errorf("%d tracks, %d bands, %d events", len(line.Tracks), len(line.Tracks[0].Bands), n)
	}
}

// TestThinned: of many events short ones are drawn as blocks that count all of them, except where they are kept, and a
// counter keeps its largest values.
func TestThinned(t *testing.T) {
	events, parts := mostEvents, cells
	mostEvents, cells = 100, 100
	defer func() { mostEvents, cells = events, parts }()
	var list []traces.Event
	for i := range int64(3000) {
		list = append(list, fixtures.Launched(uint64(i+1), 100*i, 100*i+10, 100*i+20, 100*i+70)...)
	}
	tr := fixtures.Trace(&traces.Header{}, list...)
	line := newTimeline(tr, require.Value(tables.Summarize(tr, tables.ByKernel, -1))(t), []window.Interval{{From: 10_000, To: 12_000}})
	for _, track := range line.Tracks {
		alone, blocks, counted := 0, 0, 0
		for fields := range slices.Chunk(track.Bands[0].Data, 6) {
			n := 0
			if fmt.Sscanf(line.Names.all[fields[2]], "%d events", &n); n == 0 {
				alone++
				continue
			}
			blocks, counted = blocks+1, counted+n
			if detail := line.Details.all[fields[4]]; track.Kind == "stream" && n == 30 && !strings.Contains(detail, "busy 51 % of this time") {
				t.Errorf("%d events are one: %s", n, detail)
			}
		}
		if alone != 20 || counted != 2980 || blocks > 102 || len(track.Bands) != 1 {
			t.Errorf("%s: %d events alone and %d in %d blocks, in %d bands", track.Title, alone, counted, blocks, len(track.Bands))
		}
	}
	all := 0
	for _, k := range slices.Concat(slices.Collect(maps.Values(line.Kernels))...) {
		if all += k.N; k.N != 1 || k.Busy != 50 || k.Median != 50 || k.Most != 50 {
			t.Errorf("%+v", k)
		}
	}
	if all != 3000 {
		t.Errorf("%d kernels are listed", all)
	}
	if n := len(line.Series[0].Times); n < 100 || n > 400 {
		t.Errorf("the counter has %d values", n)
	}
}

// TestRows: events find their row in the table: copies of no step that of idle time for copies, and kernels of one name
// that of their shape.
func TestRows(t *testing.T) {
	r := newRun("a")
	r.pass(rand.New(rand.NewPCG(1, 2)), "k")
	copied := traces.Plain(traces.KindMemcpy, traces.Stream(1, 0, 1, 7), "Memcpy DtoH", r.now, 500)
	copied.Plan = 0
	other := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", r.now+600, 500)
	other.Grid, other.Block = [3]int32{7, 1, 1}, [3]int32{32, 1, 1}
	tr := fixtures.Trace(&r.header, append(r.events, copied, other)...)
	find := func(name string, grid int32) *traces.Event {
		for i := range tr.Events {
			if e := &tr.Events[i]; e.Kind.IsGPU() && e.Name == name && e.Grid[0] == grid {
				return e
			}
		}
		t.Fatalf("there is no %s", name)
		return nil
	}
	stages := require.Value(tables.Summarize(tr, tables.ByStage, -1))(t)
	if i := stages.RowOf(find("Memcpy DtoH", 0)); i < 0 || stages.Rows[i].Kind != tables.RowIdle || stages.Rows[i].Name != tables.IdleCopy {
		t.Errorf("by stage the copy is of row %d", i)
	}
	kernels := require.Value(tables.Summarize(tr, tables.ByKernel, -1))(t)
	for _, grid := range []int32{7, 12} {
		if i := kernels.RowOf(find("k", grid)); i < 0 || kernels.Rows[i].Shape.Grid[0] != grid {
			t.Errorf("by kernel that of %d blocks is of row %d", grid, i)
		}
	}
}

// TestStages: stages of all layers have one row, also of a layer that runs later than its number; the biggest have
// different colours, and come first.
func TestStages(t *testing.T) {
	table := &tables.Table{By: tables.ByStage, Wall: 1000, Rows: []tables.Row{
		{Kind: tables.RowWork, Name: "h.0.ln_1", Exclusive: 400, Floor: 100}, {Kind: tables.RowWork, Name: "h.0.ln_2", Exclusive: 100},
		{Kind: tables.RowWork, Name: "h.2@1.ln_1+h.2@1.attn.c_attn", Exclusive: 200, Floor: 100}, {Kind: tables.RowWork, Name: "h.0.ln_1+h.0.attn.c_attn", Exclusive: 100},
		{Kind: tables.RowWork, Name: "h.2@1.ln_1", Exclusive: 200}, {Kind: tables.RowWork, Name: "ln_f", Exclusive: 90, Floor: 20}}}
	s := stages(table)
	if len(s) != 4 || s[0].Class != 8 || s[1].Class != 2 || s[1].Exclusive != 300 || s[2].Class != 9 || s[0].Layers[1].Class != 8 || s[0].Exclusive != 600 {
		t.Fatalf("the stages are %+v", s)
	}
	columns := (&page{Table: table, Stages: s}).columns()
	i := slices.IndexFunc(columns, func(c column) bool { return c.Key == "roofline" })
	if i < 0 || columns[i].Text(s[3]) != "22.2" {
		t.Errorf("%s does not show 22.2 %% of the roofline: %+v", s[3].Name, columns)
	}
}

// TestColours: a stage has one colour on every page; others take the next that is free, and the program's own take its
// place if they tell stages apart.
func TestColours(t *testing.T) {
	rows := func(names ...string) (rows []tables.Row) {
		for i, name := range names {
			rows = append(rows, tables.Row{Kind: tables.RowWork, Name: name, Exclusive: int64(100 - i)})
		}
		return rows
	}
	program := func(colours map[string]string) *tables.Table {
		return &tables.Table{By: tables.ByStage, Window: &window.Window{Trace: &traces.Trace{Header: &traces.Header{Colours: colours}}}}
	}
	all := rows("h.N.attn.sdpa", "ln_f+lm_head", "a", "b", "c", "d", "e", "f", "g", "i", "j", "k", "l", "m")
	one, _ := coloursOf(program(nil), all)
	seen := map[int]bool{}
	for _, class := range one {
		seen[class] = true
	}
	if one["h.N.attn.sdpa"] != 5 || one["ln_f+lm_head"] != 4 || len(seen) != classes+1 {
		t.Errorf("%v", one)
	}
	other, _ := coloursOf(program(nil), rows("b", "ln_f+lm_head"))
	alone, _ := coloursOf(program(nil), rows("b"))
	if other["b"] != alone["b"] || other["ln_f+lm_head"] != 4 {
		t.Errorf("on another page %v, on a third %v", other, alone)
	}
	got, own := coloursOf(program(map[string]string{"layer 0": "#ff0000", "head": "#0000ff", "tail": "#0000ff"}), rows("x/layer N", "head", "tail"))
	if own[got["x/layer N"]] != "#ff0000" || own[got["head"]] != "#0000ff" || own[got["tail"]] != "#0000ff" || !strings.Contains(style(own), "prefers-color-scheme: dark") {
		t.Errorf("%v, %v: %s", got, own, style(own))
	}
	if _, own := coloursOf(program(map[string]string{"a": "#00ff00", "b": "#00ff00"}), rows("a", "b")); len(own) > 0 {
		t.Errorf("one colour for all: %v", own)
	}
}

// TestDetail says of a kernel only what is known; counters have their names.
func TestDetail(t *testing.T) {
	k := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 0, 10)
	k.Grid = [3]int32{1, 1, 1} // of stamps, which know no blocks
	shaped, counted := k, traces.Plain(traces.KindKernel, k.Lane, "k", 0, 1)
	shaped.What = &traces.What{Name: "k", Grid: k.Grid, Block: [3]int32{32, 4, 1}, Registers: 40}
	counted.Occupancy, counted.Counters = 43, &traces.Counters{traces.CounterOccupancy: 12.5, traces.CounterL2Hits: 40}
	for want, e := range map[string]*traces.Event{"": &k, "grid 1, block 32x4, 40 registers per thread": &shaped,
		"estimated occupancy 43 %, achieved occupancy 12.5 %, L2 hit rate 40.0 %": &counted} {
		if got := detail(e); got != want {
			t.Errorf("the detail is %q, not %q", got, want)
		}
	}
}

// TestShortName: the page keeps the template arguments of a kernel, which may be all that distinguishes it.
func TestShortName(t *testing.T) {
	for name, want := range map[string]string{
		"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, std::array<char*, 3ul>)": "add: vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3ul>>",
		"void (anonymous namespace)::gemv_bulk<__nv_bfloat16, 1>((anonymous namespace)::Params)":                                                      "gemv_bulk<__nv_bfloat16, 1>",
		"<unnamed>::sample_kernel(<unnamed>::Sample)":                                                                                                 "sample_kernel",
		"Memcpy HtoD (Pageable -> Device)":                                                                                                            "Memcpy HtoD (Pageable -> Device)",
		"h.0.residual_2+h.1.ln_1":                                                                                                                     "h.0.residual_2+h.1.ln_1",
		"":                                                                                                                                            "",
	} {
		if got := shortName(name); got != want {
			t.Errorf("%q is %q, not %q", name, got, want)
		}
	}
}

// evil is a name that would run if it were not text.
const evil = `</script><img src=x onerror="broken=1"><script>broken=1</script>{{.}}'"&`

// run is a made-up recording of passes on a GPU: for each step a call and a kernel.
type run struct {
	header traces.Header
	events []traces.Event
	now    int64
	id     uint64
}

func newRun(names ...string) *run {
	r := &run{header: traces.Header{Version: 1, Tool: "gpt2scope", Recorder: traces.RecorderCUPTI, Process: 1, Clock: traces.Clock{Domain: "cupti", Uncertainty: 1000}}}
	plan := traces.Plan{Phase: "decode step", Batch: 1, Tokens: 1}
	for i, name := range names {
		plan.Steps = append(plan.Steps, traces.Step{Tag: i, Name: name, Op: "Linear", Layer: -1, Slot: -1, FLOPs: int64(1+i) * 400_000, Bytes: int64(1+i) * 800_000})
	}
	r.header.Plans = []traces.Plan{plan}
	return r
}

// pass adds a pass: calls of 3 us each, kernels of some us behind them.
func (r *run) pass(rnd *rand.Rand, kernel string) {
	begin, gpu := r.now, r.now
	thread, api, stream := traces.Thread(1, 10), traces.API(1, 10), traces.Stream(1, 0, 1, 7)
	for tag, s := range r.header.Plans[0].Steps {
		r.id++
		step := traces.Plain(traces.KindStep, thread, s.Name, r.now, 4000)
		step.Plan, step.Step = 0, int32(tag)
		call := traces.Plain(traces.KindRuntime, api, "cudaLaunchKernel", r.now+500, 3000)
		call.Correlation = r.id
		gpu = max(gpu+rnd.Int64N(400), r.now+2000+rnd.Int64N(4000))
		k := traces.Plain(traces.KindKernel, stream, kernel, gpu, 800+rnd.Int64N(6000))
		k.Correlation, k.Grid, k.Block, k.Registers = r.id, [3]int32{12, 1, 1}, [3]int32{128, 1, 1}, 40
		gpu = k.End()
		r.events = append(r.events, step, call, k)
		r.now += 4000
	}
	pass := traces.Plain(traces.KindPass, thread, "decode step", begin, r.now-begin)
	pass.Plan = 0
	r.events = append(r.events, pass)
	r.now = max(r.now, gpu) + rnd.Int64N(3000)
}

// layered is a recording of three layers.
func layered() *traces.Trace {
	r, rnd := newRun("wte+wpe", "h.0.attn.c_attn", "h.0.residual_2+h.1.ln_1", "h.1.attn.c_attn", "h.1.residual_2+h.2.ln_1", "h.2.attn.c_attn", "ln_f+lm_head"), rand.New(rand.NewPCG(5, 6))
	for range 5 {
		r.pass(rnd, "gemm")
	}
	return fixtures.Trace(&r.header, r.events...)
}

// withCosts is a recording with costs, ceilings, recording overhead, energy and counters.
func withCosts(t *testing.T) *traces.Trace {
	t.Helper()
	r, rnd := newRun("wte+wpe", "h.0.ln_1+h.0.attn.c_attn", "h.0.attn.sdpa", "ln_f+lm_head"), rand.New(rand.NewPCG(1, 2))
	r.header.DType = "bf16"
	r.header.Devices = []traces.Device{{ID: 0, Name: "GPU of a test", Compute: "9.0", SMs: 132, Memory: 80 << 30, Bandwidth: 4.8e12, ClockHz: 1.98e9}}
	r.header.Ceilings = []traces.Ceiling{{Name: "read", Unit: "GB/s", Value: 4000}, {Name: "read", Unit: "GB/s", Value: 9000, Size: 30 << 20},
		{Name: "bf16", Unit: "TFLOP/s", Value: 800}, {Name: "f32", Unit: "TFLOP/s", Value: 50}}
	r.header.Overhead = []traces.Overhead{{Phase: "decode step", Baseline: 20_000, Recorded: 23_000, Passes: 100}}
	r.header.Energy = []traces.Energy{{What: "decode", Millijoule: 5000, Tokens: 100, Resolution: 7, Source: "total energy counter"}}
	for i := range 20 {
		r.pass(rnd, fmt.Sprintf("gemm_%d", i%3))
		power := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter}, "power", r.now, 0)
		power.Value = 300 + float64(i)
		r.events = append(r.events, power)
	}
	return fixtures.Trace(&r.header, r.events...)
}

// host is a recording of a CPU with two threads.
func host(t *testing.T) *traces.Trace {
	t.Helper()
	r := newRun("wte+wpe", "ln_f+lm_head")
	r.header.Recorder = traces.RecorderHost
	var events []traces.Event
	for p := range int64(10) {
		at := p * 10_000
		pass := traces.Plain(traces.KindPass, traces.Thread(1, 10), "decode step", at, 9000)
		pass.Plan = 0
		events = append(events, pass)
		for tag := range int32(2) {
			for thread := range int64(2) {
				e := traces.Plain(traces.KindStep, traces.Thread(1, 10+thread), "", at+int64(tag)*4000+thread*30, 3500)
				e.Plan, e.Step, e.Name = 0, tag, r.header.Plans[0].Steps[tag].Name
				events = append(events, e)
			}
		}
	}
	return fixtures.Trace(&r.header, events...)
}

// hostile has markup in every text.
func hostile() *traces.Trace {
	r := newRun(evil, evil+" 2")
	r.pass(rand.New(rand.NewPCG(1, 2)), evil)
	h := &r.header
	h.Tool, h.Release, h.Command, h.DType, h.Plans[0].Phase = evil, evil, []string{evil}, evil, evil
	h.Devices = []traces.Device{{Name: evil, Compute: evil}}
	h.Versions = map[string]string{evil: evil}
	h.Lanes = []traces.LaneName{{Lane: traces.Thread(1, 10), Name: evil}}
	h.NotRecorded = []string{evil}
	h.Incomplete = []string{evil}
	h.Overhead = []traces.Overhead{{Phase: evil}}
	h.Energy = []traces.Energy{{What: evil, Source: evil}}
	h.Ceilings = []traces.Ceiling{{Name: evil, Unit: evil, Value: 1}}
	open := traces.Plain(traces.KindRange, traces.Thread(1, 11), evil, 0, 0)
	open.Open, open.Domain = true, evil
	counter := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter}, evil, 10, 0)
	return fixtures.Trace(h, append(r.events, open, counter)...)
}

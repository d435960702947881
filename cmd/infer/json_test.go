package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/auto"
	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/bench"
	"gpt2scope/cmd/infer/cli"
	learncmd "gpt2scope/cmd/infer/learn"
	taskscmd "gpt2scope/cmd/infer/tasks"
	"gpt2scope/cmd/infer/trace"
	"gpt2scope/energy"
	"gpt2scope/layers"
	"gpt2scope/learn"
	"gpt2scope/measure"
	"gpt2scope/predict"
	"gpt2scope/predict/grade"
	"gpt2scope/schedule"
	"gpt2scope/tasks"
	"gpt2scope/traces"
	"gpt2scope/traces/diff"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/kpi"
	"gpt2scope/traces/tables"
)

// jsonObjects are the objects of docs/json.md that are Go structs.
var jsonObjects = map[string]any{
	"infer --json": result{}, "Sampling": sampling{}, "Timings": timings{}, "Load": loadJSON{}, "Candidate": top{}, "Configuration": cli.Setting{}, "Auto": cli.AutoJSON{}, "Expected": cli.PredictionJSON{}, "History": historyJSON{}, "Known": auto.Known{},
	"infer info --json": infoJSON{}, "Geometry": geometryJSON{}, "InfoMemory": infoMemoryJSON{}, "Plan": planJSON{}, "PlanStep": stepJSON{}, "InfoGPU": gpuJSON{}, "GPUMemory": memoryJSON{}, "Product": productJSON{},
	"infer devices --json": devices{}, "GPU": gpuDevice{}, "CPU": cpuDevice{}, "infer version --json": versionJSON{},
	"Device": bench.BenchDevice{}, "Ceiling": ceilings.Value{}, "Ceilings": ceilings.Set{}, "Kernel": bench.KernelRow{}, "StageTime": measure.StageTime{},
	"infer eval --json": evalJSON{}, "infer tokenize --json": tokensJSON{}, "infer bench --json": bench.BenchJSON{},
	"infer bench ceilings --json": bench.CeilingsObject{}, "infer bench kernel --json": bench.KernelJSON{}, "infer bench overhead --json": bench.OverheadJSON{},
	"infer bench inside --json": bench.InsideJSON{}, "InsideTime": measure.InsideTime{},
	"infer bench --rows --json": bench.RowsJSON{}, "infer bench energy --json": bench.EnergyObject{},
	"EnergyResult": bench.EnergyResult{}, "Power": energy.Power{}, "OverheadRow": bench.OverheadRow{}, "BenchRow": bench.BenchResult{}, "BenchTest": bench.ListRow{},
	"infer trace show --json": trace.TableJSON{},
	"Passes":                  tables.Passes{}, "Row": tables.Row{}, "SMParts": traces.Parts{}, "SMRow": tables.SMRow{}, "Shape": tables.Shape{}, "Occupancy": tables.Occupancy{}, "OpRow": tables.OpRow{}, "LaunchRow": tables.LaunchRow{}, "Launch": tables.Launch{},
	"RangeRow": tables.RangeRow{}, "ProcessRow": tables.ProcessRow{}, "Spread": tables.Spread{},
	"Queue": tables.Queue{}, "Finding": traces.Finding{}, "infer trace check --json": trace.CheckJSON{}, "Counts": traces.Attribution{},
	"infer trace advise --json": struct {
		Source string `json:"source"`
		judge.Advice
	}{},
	"Hint": judge.Hint{},
	"infer trace kpi --json": struct {
		Source string `json:"source"`
		kpi.Report
	}{},
	"Indicator": kpi.Indicator{}, "Check": judge.Check{},
	"infer trace diff --json": struct {
		FileA string `json:"file_a"`
		FileB string `json:"file_b"`
		diff.Comparison
	}{},
	"Change": diff.Change{}, "Sample": diff.Sample{},
	"infer learn --json": learncmd.LearnJSON{}, "Lesson": learn.Result{}, "LessonPart": learn.Part{}, "LessonFigure": learn.Figure{}, "LessonPoint": learn.Point{},
	"infer tasks bench --json": taskscmd.TasksObject{}, "Crossover": tasks.Crossover{},
	"infer tasks import --json": tasks.Explanation{}, "TaskKernel": tasks.Kernel{}, "Total": tasks.Total{},
	"infer tasks simulate --json": schedule.Report{}, "Policy": schedule.PolicyReport{}, "PolicyDevice": schedule.DeviceReport{},
	"infer tasks run --json": schedule.Report{},
	"infer tasks fit --json": predict.Model{}, "ModelDevice": predict.Device{}, "ModelTask": predict.Task{}, "Cell": predict.Cell{}, "Neighbourhood": predict.Neighbourhood{}, "Measured": predict.Measured{}, "Law": predict.Law{}, "Start": predict.Start{}, "Transfer": predict.Transfer{},
	"infer tasks check --json": grade.Result{}, "Score": grade.Score{}, "Interval": grade.Interval{},
	"infer layers --json": layers.Result{}, "Variant": layers.Variant{}, "Metric": layers.Metric{}, "Fit": layers.Fit{}, "LayerStep": layers.LayerStep{}, "Prediction": layers.Prediction{},
}

// jsonField is a line of a table in docs/json.md.
type jsonField struct {
	kind     string // "string", "number[]", "Row[] or null"
	optional bool   // it may be absent
}

// fieldsOf returns the fields that encoding/json writes of a struct.
func fieldsOf(t reflect.Type) map[string]jsonField {
	out := map[string]jsonField{}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "":
			maps.Copy(out, fieldsOf(f.Type))
		case f.IsExported() && tag != "-":
			out[tag] = jsonField{kindOf(f.Type), strings.Contains(options, "omitempty")}
		}
	}
	return out
}

func kindOf(t reflect.Type) string {
	if t == reflect.TypeFor[tables.Folded]() {
		return "Row" // with other rows, which are not written
	}
	for name, of := range jsonObjects {
		if t == reflect.TypeOf(of) {
			return name
		}
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "string"
	case t.Kind() == reflect.Pointer:
		return kindOf(t.Elem())
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return kindOf(t.Elem()) + "[]"
	case t.Kind() == reflect.Map:
		return "map of " + kindOf(t.Elem())
	case t.Kind() == reflect.String, t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "string"
	case t.Kind() == reflect.Bool:
		return "bool"
	case t.Kind() == reflect.Interface:
		return "any"
	case t.Kind() == reflect.Struct:
		return "object " + t.String()
	}
	return "number"
}

var jsonLine = regexp.MustCompile("^\\| (`[^|]+`) \\| ([^|]+?)(\\?)? \\|([^|]*)\\|$")

// jsonDocs reads docs/json.md: of each heading the table below it.
func jsonDocs(t *testing.T) map[string]map[string]jsonField {
	t.Helper()
	data, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	docs, at := map[string]map[string]jsonField{}, ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			at = strings.Trim(strings.TrimLeft(line, "# "), "`")
		} else if m := jsonLine.FindStringSubmatch(line); m != nil {
			if docs[at] == nil {
				docs[at] = map[string]jsonField{}
			}
			for name := range strings.SplitSeq(m[1], ", ") {
				docs[at][strings.Trim(name, "`")] = jsonField{m[2], m[3] != ""}
			}
		} else if strings.HasPrefix(line, "| `") {
			t.Errorf("docs/json.md: this is not | `field`, ... | type | meaning |: %s", line)
		}
	}
	return docs
}

// checkJSON compares a value with what docs/json.md says of it.
func (d jsonSchema) check(where, kind string, v any) {
	d.t.Helper()
	kind, nullable := strings.CutSuffix(kind, " or null")
	if v == nil {
		if !nullable && kind != "any" {
			d.t.Errorf("%s is null, and docs/json.md says %s", where, kind)
		}
		return
	}
	if of, ok := strings.CutSuffix(kind, "[]"); ok {
		list, ok := v.([]any)
		if !ok {
			d.t.Errorf("%s is %v, and docs/json.md says %s", where, v, kind)
		}
		for _, v := range list {
			d.check(where+"[]", of, v)
		}
		return
	}
	if of, ok := strings.CutPrefix(kind, "map of "); ok {
		object, ok := v.(map[string]any)
		if !ok {
			d.t.Errorf("%s is %v, and docs/json.md says %s", where, v, kind)
		}
		for name, v := range object {
			d.check(where+"."+name, of, v)
		}
		return
	}
	is := map[reflect.Kind]string{reflect.String: "string", reflect.Float64: "number", reflect.Bool: "bool"}[reflect.TypeOf(v).Kind()]
	if kind == "any" || kind == is {
		return
	}
	fields := d.docs[kind]
	object, ok := v.(map[string]any)
	if !ok || fields == nil {
		d.t.Errorf("%s is %v, and docs/json.md says %s", where, v, kind)
		return
	}
	for name, v := range object {
		if f, ok := fields[name]; ok {
			d.check(where+"."+name, f.kind, v)
		} else {
			d.t.Errorf("%s.%s is not in docs/json.md, under %s", where, name, kind)
		}
	}
	for name, f := range fields {
		if _, ok := object[name]; !ok && !f.optional {
			d.t.Errorf("%s has no %s, and docs/json.md does not say that it may be absent", where, name)
		}
	}
}

type jsonSchema struct {
	t    *testing.T
	docs map[string]map[string]jsonField
}

// docs/json.md has the fields that the program's structs have, by names in snake_case.
func TestDocsJSONFields(t *testing.T) {
	docs := jsonDocs(t)
	snake := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	for name, of := range jsonObjects {
		want := fieldsOf(reflect.TypeOf(of))
		for field, f := range want {
			have, ok := docs[name][field]
			if have.kind = strings.TrimSuffix(have.kind, " or null"); !ok || have != f {
				t.Errorf("docs/json.md: %s: %s should be %q, optional %v; it is %q, %v", name, field, f.kind, f.optional, have.kind, have.optional)
			}
			if !snake.MatchString(field) {
				t.Errorf("%s: %q is not snake_case", name, field)
			}
		}
		for field := range docs[name] {
			if _, ok := want[field]; !ok {
				t.Errorf("docs/json.md: %s has no field %s", name, field)
			}
		}
	}
}

// What commands print is what docs/json.md says.
func TestDocsJSONOutput(t *testing.T) {
	schema := jsonSchema{t, jsonDocs(t)}
	dir := t.TempDir()
	text, file := filepath.Join(dir, "text"), filepath.Join(dir, "run.json")
	if err := os.WriteFile(text, []byte(strings.Repeat("To be or not to be. ", 10)), 0o666); err != nil {
		t.Fatal(err)
	}
	withStub(t)
	mustInfer(t, "-m", tiny, "-p", "x", "-n", "30", "-s", "1", "--device", "cpu", "--no-baseline", "--trace", file)
	runs := [][]string{
		{"infer", "-m", tiny, "-p", "x", "-n", "9", "-s", "1", "--device", "cpu", "--logprobs=2", "--stop", "zzz"},
		{"infer", "-m", tiny, "-p", "x", "-n", "3", "-s", "1", "--device", "cpu", "--no-baseline", "--profile"},
		{"infer", "-m", tiny, "--ids", "1", "-n", "9", "-s", "1", "--device", "cuda", "--warm-up"},
		{"infer", "-m", goldenModel, "--ids", "1", "-n", "2", "-s", "1", "--device", "cpu"},
		{"infer info", "--device", "cpu"}, {"infer info", "-m", tiny, "--device", "cuda", "--variant", "attn.sdpa=naive", "--prompt-len", "40"},
		{"infer eval", "-m", tiny, "--text", text, "--device", "cpu"},
		{"infer learn"}, {"infer learn", "6", "--device", "cpu"}, {"infer tokenize", "-m", tiny, "-p", "x"}, {"infer devices"}, {"infer version"},
		{"infer bench", "-m", tiny, "--device", "cpu", "--repeat", "2", "--no-floor"}, {"infer bench", "-m", tiny, "--device", "cuda", "--repeat", "2"},
		{"infer bench ceilings", "--device", "cuda"}, {"infer bench kernel", "attn.sdpa", "-m", tiny, "--device", "cuda", "--past", "8"},
		{"infer bench inside", "-m", tiny, "--device", "cuda", "--launches", "2"},
		{"infer bench overhead", "-m", tiny, "--device", "cpu", "--rounds", "1", "--repeat", "2", "--prompt-len", "4", "--past", "4"},
		{"infer trace check", file}, {"infer trace advise", file, "--all"}, {"infer trace diff", file, file},
		{"infer tasks bench", "-m", "random:L=1,C=64,NH=1,V=257,T=16", "--device", "cpu", "--tasks", "vector.add", "--max-size", "1", "--repeat", "1", "--rounds", "1", "--cold", "0", "--no-floor", "-o", filepath.Join(dir, "tasks")},
		{"infer tasks fit", someSamples(t)}, {"infer tasks check", someSamples(t)},
		{"infer trace stages", "../../traces/samples/stages/hf-sdpa-f32-L1-prefill.json.gz"},
		{"infer layers", "-m", tiny, "--device", "cpu", "--range", "1-2", "--predict", "3", "--repeat", "2", "--passes", "1", "--warm-up", "0", "--energy-seconds", "0", "--no-floor", "--no-memory", "--no-plots", "-o", filepath.Join(dir, "layers")},
	}
	samples, err := filepath.Glob("../../traces/samples/gpt2-L1-*.gz")
	if err != nil || len(samples) == 0 {
		t.Fatal("there are no samples", err)
	}
	for _, recording := range append(samples, file) {
		for _, by := range tables.Bys {
			runs = append(runs, []string{"infer trace show", recording, "--by", string(by)})
		}
	}
	for _, run := range runs {
		args := append(append(strings.Fields(run[0])[1:], run[1:]...), "--json")
		e := infer(t, args...)
		if e.status != exitOK && slices.Contains(args, "show") { // not every recording has every table
			continue
		}
		if e.status != exitOK && !slices.Contains(args, "kernel") && !slices.Contains(args, "check") { // which say of their results that they are bad
			t.Fatalf("%q: %s", args, e.stderr)
		}
		var v any
		if err := json.Unmarshal([]byte(e.stdout), &v); err != nil {
			t.Fatalf("%q prints %v\n%s", args, err, e.stdout)
		}
		schema.check(fmt.Sprint(args), run[0]+" --json", v)
	}
}

// What is JSON has its fields in an order of meaning, results before what they are of, not in
// that of the alphabet.
func TestJSONOrder(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("The quick brown fox jumps over the lazy dog."), 0o666); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string][]string{
		"eval --window 8 --text " + text: {"loss", "perplexity", "bits_per_byte", "tokens", "bytes", "window", "stride", "seconds", "tokens_per_s", "configuration"},
		"tokenize -p ab":                 {"ids", "pieces", "bytes"},
		"bench --repeat 2 --device cpu":  {"phase", "batch", "tokens", "past", "logits", "repeat", "median_ms", "p10_ms", "p90_ms", "gflop_per_s", "gb_per_s", "floor_ms"},
	} {
		out := mustInfer(t, append(strings.Fields(command), "-m", tiny, "--json")...).stdout
		at := 0
		for _, name := range want {
			i := strings.Index(out, "\n  \""+name+"\":")
			if i < at {
				t.Errorf("%s: %s is not there, or before the fields that should precede it: %s", command, name, out)
			}
			at = i
		}
	}
}

package tasks

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"gpt2scope/predict"
)

// sampled is a sample with every field set.
func sampled() Sample {
	return Sample{
		Row: predict.Row{Machine: "here", Processor: "a GPU", Device: "cuda:0", Shape: "n=1024", Us: 1e9 / 3, H2DUs: 2.25, D2HUs: 4,
			Work: predict.Work{Task: "vector.add", DType: "float32", FLOPs: 1024, Bytes: 12288, BytesIn: 8192, BytesOut: 4096, Steps: 1, Rows: 2, Inner: 5, Threads: 6, Kernel: 7, Idle: 1.25,
				FloorUs: 0.01, Memory: predict.Pinned, Cold: true}},
		Variant: "one thread", Repeat: 3, SubmitUs: 1.5, KernelUs: 3, SMClockMHz: 1980, Throttle: "power, \"thermal\"", UsedByOthers: true, Disturbed: true,
		MachineKey: "GPU, CUDA 13\nline", Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
}

// What is written is read, every field of it, whatever the order of the columns.
func TestSamples(t *testing.T) {
	full := reflect.ValueOf(sampled())
	for _, c := range columns {
		if c.name == "" || full.FieldByIndex(c.field).IsZero() {
			t.Fatalf("field %v (%q) has no name, or is not set: the test would not see it lost", c.field, c.name)
		}
	}
	unknown := sampled()
	unknown.H2DUs, unknown.SMClockMHz, unknown.Cold = 0, 0, false
	var b bytes.Buffer
	must(t, WriteSamples(&b, []Sample{sampled(), unknown}))
	if _, row, _ := strings.Cut(b.String(), "\n"); strings.Count(row, ",,") != 2 {
		t.Errorf("times that were not measured are no empty cells:\n%s", row)
	}
	got, err := ReadSamples(&b)
	if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], sampled()) {
		t.Fatalf("%+v, %v; want %+v", got, err, sampled())
	}
	if got[1] != unknown {
		t.Errorf("times that were not measured: %+v", got[1])
	}
}

// A damaged file names the line and the column.
func TestSamplesDamaged(t *testing.T) {
	var b bytes.Buffer
	must(t, WriteSamples(&b, []Sample{sampled()}))
	good := b.String()
	for _, c := range []struct{ from, to, want string }{
		{good, "", "empty"},
		{"wall_us", "time_us", "column wall_us is missing"},
		{"n=1024", "n=-1", "line 2: column shape"},
		{"n=1024", "n=01024", "line 2: column shape"},
		{"n=1024", "", "line 2: column shape"},
		{",3,1.5,", ",0,1.5,", "line 2: column repeat"},
		{",1.5,", ",-1.5,", "line 2: column submit_us"},
		{",1.5,", ",NaN,", "line 2: column submit_us"},
		{",1.5,", ",1e300,", "line 2: column submit_us"},
		{",1.5,", ",", "wrong number of fields"},
		{"true,true,", "true,maybe,", "line 2: column disturbed"},
		{"2026-01-02T", "yesterday", "line 2: column time"},
		{"vector.add", "", "line 2: task or device is empty"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if _, err := ReadSamples(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v, want %q", c.to, c.from, err, c.want)
		}
	}
}

func FuzzReadSamples(f *testing.F) {
	var b bytes.Buffer
	must(f, WriteSamples(&b, []Sample{sampled()}))
	f.Add(b.String())
	f.Fuzz(func(t *testing.T, text string) {
		samples, err := ReadSamples(strings.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		must(t, WriteSamples(&b, samples))
		if again, err := ReadSamples(&b); err != nil || len(again) != len(samples) {
			t.Errorf("%d samples were read again as %d: %v", len(samples), len(again), err)
		}
	})
}

func TestShape(t *testing.T) {
	s, err := ParseShape("past=512,b=1,l=6")
	if err != nil || s.String() != "past=512,b=1,l=6" || s.Get("b") != 1 || s.Get("l") != 6 || s.Get("x") != 0 {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"", "n", "n=", "=1", "n=x", "n=-1", "n=1,", "n=99999999999999999999", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"} {
		if s, err := ParseShape(bad); err == nil {
			t.Errorf("%q is read as %v", bad, s)
		}
	}
}

package record_test

import (
	"reflect"
	"testing"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// Times of both clocks agree.
func TestClocks(t *testing.T) {
	r := record.New("test", "1")
	end := r.WarmUp()
	time.Sleep(2 * time.Millisecond)
	end()
	trace := r.Trace()
	if len(trace.Events) != 1 {
		t.Fatalf("%d events", len(trace.Events))
	}
	e := trace.Events[0]
	if e.Kind != traces.KindRange || e.Name != "warm-up" || !e.WarmUp || e.Time < 0 || e.Duration < int64(2*time.Millisecond) ||
		e.End() > r.Now() {
		t.Errorf("the range is %+v", e)
	}
	if wall := time.Now().UnixNano() - trace.Header.Base; wall < e.End() || wall > e.End()+int64(10*time.Second) {
		t.Errorf("by the base the range ended %d ns before now", wall-e.End())
	}
}

// Floors need bandwidths and arithmetic rates, which the header has; latencies they do not.
func TestCeilings(t *testing.T) {
	r := record.New("x", "1")
	r.Ceilings(-1, ceilings.Set{Values: []ceilings.Value{{Name: "read", Unit: "GB/s", Value: 100,
		Size: 1000, Where: "L2 cache"},
		{Name: "copy", Unit: "GB/s", Value: 0.5}, {Name: "f32", Unit: "TFLOP/s", Value: 1e-3}, {Name: "barrier", Unit: "us", Value: 2}}})
	want := []traces.Ceiling{{Device: -1, Name: "read", Unit: "GB/s", Value: 100, Size: 1000},
		{Device: -1, Name: "copy", Unit: "GB/s", Value: 0.5}, {Device: -1, Name: "f32", Unit: "TFLOP/s", Value: 1e-3}}
	if got := r.Trace().Header.Ceilings; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

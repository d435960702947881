package learn

import (
	"fmt"
	"strings"
	"testing"
)

// addOverlap adds rounds in which the work of chunks takes a ms each. If apart, chunks follow one another; otherwise a
// chunk begins a ms after the one before.
func (d *Data) addOverlap(of string, apart bool) {
	for round := range 11 {
		end := 0.0
		for chunk := range overlapChunks {
			start := 1000 * float64(chunk)
			if apart {
				start *= 3
			}
			for i := range 4 {
				end = start + 1000*float64(i) + float64(round%3)
				d.add(of, fmt.Sprintf("mark_%d_us", i), float64(chunk), end)
			}
		}
		if round > 0 {
			d.add(of, "time_us", 0, end)
		}
	}
}

func TestOverlap(t *testing.T) {
	data := func(apart ...bool) (d Data) {
		for i, of := range overlapCases {
			d.addOverlap(of, apart[i])
		}
		return d
	}
	verdicts(t, judgeOverlap, given{
		"two streams overlap": {data(true, false, true), Shown},
		"none does":           {data(true, true, true), Refuted},
		"no gain":             {data(false, false, true), Unknown},
	})
	f := judgeOverlap(data(true, false, true))
	if !strings.Contains(f.Text, "not otherwise") || len(f.Lines) != 12 || !strings.HasPrefix(strings.TrimSpace(f.Lines[1]), "copy in   11") || !strings.HasPrefix(strings.TrimSpace(f.Lines[5]), "copy in   1122") {
		t.Errorf("%s\n%s", f.Text, strings.Join(f.Lines, "\n"))
	}
}

// A mark before work says when its stream came to it. Work that waits for an engine has not started.
func TestSpans(t *testing.T) {
	var d Data
	for chunk, marks := range [][]float64{{0, 10, 20, 30}, {0, 20, 30, 40}} {
		for i, at := range marks {
			d.add(inTwoStreams, fmt.Sprintf("mark_%d_us", i), float64(chunk), at)
		}
	}
	spans := spansOf(d, inTwoStreams, 0)
	if len(spans) != 6 || spans[3] != (span{"copy in", 1, 10, 20}) || spans[4] != (span{"kernel", 1, 20, 30}) {
		t.Fatalf("%+v", spans)
	}
	if p, ok := hidden(spans); !ok || p != 100 {
		t.Errorf("copies run during %g %% of the kernels, want 100: the second copy in, the first copy back", p)
	}
	if _, ok := hidden(nil); ok {
		t.Error("no work is no overlap")
	}
}

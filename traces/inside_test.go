package traces

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// TestInside: what SMs did inside a kernel is read as it was written; what cannot be of the
// event is left out.
func TestInside(t *testing.T) {
	e := Plain(KindKernel, Stream(1, 0, 1, 7), "decode_kernel (Linear)", 1000, 100)
	e.Inside = &Inside{Parts{10, 20, 60, 10}, 2, []Parts{{5, 15, 80, 0}, {}, {15, 25, 40, 20}}}
	var b bytes.Buffer
	w := NewWriter(&b, &Header{Process: 1})
	if err := w.Write(e); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(text string) *Inside {
		t.Helper()
		_, events, err := Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []Event
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		if len(got) != 1 || got[0].Duration != 100 {
			t.Fatalf("%d events: %+v", len(got), got)
		}
		return got[0].Inside
	}
	if got := read(b.String()); !reflect.DeepEqual(got, e.Inside) {
		t.Errorf("%+v became %+v", e.Inside, got)
	}
	for was, is := range map[string]string{
		`"weights":10`:      `"weights":11`,
		`"compute":60`:      `"compute":-60`,
		`"sms":2`:           `"sms":0`,
		`"inputs":20`:       `"inputs":9223372036854775807`,
		`[5,15,80,0,`:       `[5,15,80,1,`,
		`"each":[`:          `"each":[` + strings.Repeat("0,", 4*maxSMs),
		`"inside":{"sms":2`: `"inside":7,"x":{"sms":2`,
	} {
		changed := strings.Replace(b.String(), was, is, 1)
		if changed == b.String() {
			t.Fatalf("the file has no %s: %s", was, b.String())
		}
		if got := read(changed); got != nil {
			t.Errorf("%s in place of %s: %+v", is[:min(40, len(is))], was, got)
		}
	}
}

// TestInsideFit: parts that rounding made differ from a duration sum to it.
func TestInsideFit(t *testing.T) {
	in := Inside{Parts{3, 50, 4, 5}, 2, []Parts{{1, 2, 3, 60}, {}}}
	in.Fit(64)
	if want := (Inside{Parts{3, 52, 4, 5}, 2, []Parts{{1, 2, 3, 58}, {}}}); !reflect.DeepEqual(in, want) {
		t.Errorf("%+v, want %+v", in, want)
	}
}

package learn

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		whole, host, back string
		access            float64
		want              Verdict
		part              string
	}{
		{cameRight, cameError + "an illegal memory access", cameWrong, 0, Shown, "gives no error"},
		{cameRight, cameRight, cameWrong, 1, Refuted, "here kernels can follow"},
		{cameRight, cameError + "x", cameRight, 0, Refuted, "The copy back was left out, and the result is right"},
		{cameWrong, cameError + "x", cameWrong, -1, Unknown, "did not say"},
		{cameRight, "", cameWrong, 0, Unknown, "not run"},
	} {
		var d Data
		d.add("GPU", "pageable_memory_access", 0, c.access)
		d.say(allSteps, "outcome", c.whole)
		d.say(hostPointers, "outcome", c.host)
		d.say(noCopyBack, "outcome", c.back)
		if f := judgeSteps(d); f.Verdict != c.want || !strings.Contains(f.Text, c.part) {
			t.Errorf("%+v: %s: %s", c, f.Verdict, f.Text)
		}
		d.say(allSteps, "outcome", "another")
		if f := judgeSteps(d); f.Verdict != Unknown {
			t.Errorf("outcomes that differ: %s: %s", f.Verdict, f.Text)
		}
	}
}

// The programs do what they say on the stub, whose device memory is the host's.
func TestSixSteps(t *testing.T) {
	withStub(t, quick(t))
	for program, want := range map[string]string{allSteps: cameRight, hostPointers: cameRight, noCopyBack: cameWrong} {
		var out bytes.Buffer
		var d Data
		if err := sixSteps(t.Context(), []string{"0", program}, &out); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.text(program, "outcome") != want {
			t.Errorf("%s: %v, %+v", program, err, d)
		}
	}
	for _, args := range [][]string{nil, {"x", allSteps}} {
		if err := sixSteps(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

package learn

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestSteps(t *testing.T) {
	data := func(whole, host, back string, access float64) (d Data) {
		d.add("GPU", "pageable_memory_access", 0, access)
		d.say(allSteps, "outcome", whole)
		d.say(hostPointers, "outcome", host)
		d.say(noCopyBack, "outcome", back)
		return d
	}
	differ := data(cameRight, cameError+"x", cameWrong, 0)
	differ.say(allSteps, "outcome", "another")
	verdicts(t, judgeSteps, given{
		"each omission costs":      {data(cameRight, cameError+"an illegal memory access", cameWrong, 0), Shown},
		"host pointers work":       {data(cameRight, cameRight, cameWrong, 1), Refuted},
		"the copy back is no need": {data(cameRight, cameError+"x", cameRight, 0), Refuted},
		"all steps fail":           {data(cameWrong, cameError+"x", cameWrong, -1), Unknown},
		"one was not run":          {data(cameRight, "", cameWrong, 0), Unknown},
		"outcomes that differ":     {differ, Unknown},
	})
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

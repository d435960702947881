package main

import (
	"math"
	"testing"

	"gpt2scope/cmd/infer/cli"
)

// TestQualityOfQ8: rounding weights to 8 bits costs a trained model next to nothing, whether activations stay float32, as in a
// prefill, or are rounded too, as in a decode step, whose path chunks of 4 tokens take in every version of the kernels.
func TestQualityOfQ8(t *testing.T) {
	bits := func(args ...string) float64 {
		var got struct {
			BitsPerByte   float64 `json:"bits_per_byte"`
			Configuration cli.Setting
		}
		e := mustInfer(t, with([]string{"eval", "-m", "../../weights/shakespeare", "--text", "../../parity/prompt.txt", "--json"}, args...)...)
		unmarshal(t, e.stdout, &got)
		if want := args[len(args)-1]; got.Configuration.DType != want {
			t.Fatalf("weights are held as %s, want %s", got.Configuration.DType, want)
		}
		return got.BitsPerByte
	}
	whole, chunked := bits("--dtype", "f32"), bits("--chunk", "4", "--dtype", "f32")
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"prefill", bits("--dtype", "q8"), whole},
		{"decode", bits("--chunk", "4", "--dtype", "q8"), chunked},
	} {
		if d := math.Abs(c.got - c.want); !(d < 0.005) || d == 0 {
			t.Errorf("%s: %g bits per byte with q8, %g with f32", c.name, c.got, c.want)
		}
		t.Logf("%s: %g bits per byte with q8, %g with f32", c.name, c.got, c.want)
	}
}

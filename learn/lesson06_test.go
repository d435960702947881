package learn

import (
	"math/rand/v2"
	"testing"
)

// squaresData are ten rounds in which each way takes a time that differs a little from round to round.
func squaresData(times ...float64) (d Data) {
	for round := range 10 {
		for i, way := range squares {
			d.add(way, "time_us", 0, times[i]*(1+0.001*float64((round*(i+3))%7-3)))
		}
	}
	return d
}

func TestSquares(t *testing.T) {
	for _, c := range []struct {
		times []float64
		want  Verdict
	}{
		{[]float64{3333, 3331, 3339, 3330}, Refuted}, // those of the claim
		{[]float64{3333, 3200, 3150, 3330}, Refuted}, // the others are faster
		{[]float64{3333, 3500, 3600, 3330}, Shown},
		{[]float64{3333, 3500, 3335, 3330}, Refuted}, // faster than one of two
	} {
		if f := judgeSquares(squaresData(c.times...)); f.Verdict != c.want {
			t.Errorf("%v: %s: %s", c.times, f.Verdict, f.Text)
		}
	}
	noisy := squaresData(3333, 3333, 3333, 3333)
	for i := range noisy {
		noisy[i].Value *= 1 + 0.3*float64(i*7%5-2)
	}
	if f := judgeSquares(noisy); f.Verdict != Unknown {
		t.Errorf("times that differ by half from round to round: %s: %s", f.Verdict, f.Text)
	}
	// Other work that interrupts one call in six for a long time does not change the verdict.
	busy, random := Data{}, rand.New(rand.NewPCG(1, 2))
	for range 401 {
		for _, way := range squares {
			t := 250 + 5*random.NormFloat64()
			if random.IntN(6) == 0 {
				t += 20_000 * random.Float64()
			}
			busy.add(way, "time_us", 0, t)
		}
	}
	if f := judgeSquares(busy); f.Verdict != Refuted {
		t.Errorf("one call in six is interrupted: %s: %s %v", f.Verdict, f.Text, f.Figures)
	}
	if f := judgeSquares(squaresData(1, 1, 1, 1)[:8]); f.Verdict != Unknown {
		t.Errorf("two rounds: %s: %s", f.Verdict, f.Text)
	}
}

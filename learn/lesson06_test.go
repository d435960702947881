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
	noisy := squaresData(3333, 3333, 3333, 3333)
	for i := range noisy {
		noisy[i].Value *= 1 + 0.3*float64(i*7%5-2)
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
	verdicts(t, judgeSquares, given{
		"the times of the claim":                  {squaresData(3333, 3331, 3339, 3330), Refuted},
		"the others are faster":                   {squaresData(3333, 3200, 3150, 3330), Refuted},
		"faster than both":                        {squaresData(3333, 3500, 3600, 3330), Shown},
		"faster than one of two":                  {squaresData(3333, 3500, 3335, 3330), Refuted},
		"they differ by half from round to round": {noisy, Unknown},
		"one call in six is interrupted":          {busy, Refuted},
		"two rounds":                              {squaresData(1, 1, 1, 1)[:8], Unknown},
	})
}

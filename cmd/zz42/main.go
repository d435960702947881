package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
)

// zz42 MODEL TOKENS TEMPS WAYS
func main() {
	var m *gpt2.Model
	var err error
	if strings.HasPrefix(os.Args[1], "random:") {
		m, err = gpt2.Random(os.Args[1])
	} else {
		m, err = gpt2.Open(os.Args[1])
	}
	check(err)
	n, _ := strconv.Atoi(os.Args[2])
	b, err := exec.New(exec.Options{Mode: exec.Persistent, Notice: func(s string) { fmt.Println("notice:", s) }})
	check(err)
	s, err := gpt2.NewSession(context.Background(), m, b, gpt2.Options{})
	check(err)
	ids := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	if m.Tokenizer != nil {
		ids = m.Tokenizer.EncodeOrdinary("ROMEO:")
	}
	for _, temp := range strings.Split(os.Args[3], ",") {
		t, _ := strconv.ParseFloat(temp, 64)
		var want []uint64
		for _, way := range strings.Fields(os.Args[4]) {
			by, err := gpt2.ParseSpeculation(way)
			check(err)
			var us []float64
			var d gpt2.Speculated
			tokens, steps, same := 0, 0, true
			for round := range 7 {
				seed := uint64(5 + round%3)
				check(s.Reset())
				g := gpt2.Generation{Tokens: n, IgnoreEOS: true, Sampling: gpt2.Sampling{Temperature: t, TopK: 40, Seed: seed}, Speculate: by}
				if t == 0 {
					g.Sampling.TopK = 0
				}
				h := fnv.New64()
				bad := false
				for token, err := range s.Generate(context.Background(), ids, g) {
					if err != nil {
						fmt.Println(way, err)
						bad = true
						break
					}
					fmt.Fprint(h, token.ID, token.Position, " ")
				}
				if bad {
					break
				}
				if len(want) <= round {
					want = append(want, h.Sum64())
				}
				same = same && want[round] == h.Sum64()
				st := s.Stats()
				us = append(us, float64(st.DecodeTime)/1e3/float64(max(1, st.DecodeTokens)))
				d.Passes += st.Speculated.Passes
				d.Drafted += st.Speculated.Drafted
				d.Accepted += st.Speculated.Accepted
				d.DraftTime += st.Speculated.DraftTime
				d.VerifyTime += st.Speculated.VerifyTime
				tokens += st.DecodeTokens
				steps += st.DecodeSteps
			}
			if len(us) == 0 {
				continue
			}
			fmt.Printf("temp %s %-10s us", temp, way)
			for _, u := range us {
				fmt.Printf(" %.1f", u)
			}
			slices.Sort(us)
			fmt.Printf(" median %.2f", us[len(us)/2])
			if d.Passes > 0 {
				per := func(x time.Duration, n int) float64 { return float64(x) / 1e3 / float64(max(1, n)) }
				fmt.Printf(" | %d tokens %d steps %d passes %d drafted %d accepted %.2f a step; us draft %.1f (each of %d) verify %.1f a pass", tokens, steps,
					d.Passes, d.Drafted, d.Accepted, float64(tokens)/float64(steps), per(d.DraftTime, d.Drafted), d.Drafted, per(d.VerifyTime, d.Passes))
			}
			fmt.Println(" same", same)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

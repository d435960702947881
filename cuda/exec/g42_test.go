package exec

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
)

func TestG42(t *testing.T) {
	for _, spec := range strings.Fields(os.Getenv("G42")) {
		m := randomModel(t, spec)
		for _, mode := range []Mode{Persistent, Graph} {
			var s [2]*gpt2.Session
			for i, q8 := range []bool{false, true} {
				b, err := New(Options{Mode: mode, Q8: q8, Notice: func(s string) { fmt.Println("notice", s) }})
				must(t, err)
				defer b.Close()
				s[i] = session(t, m, b, gpt2.Options{Batch: 1})
			}
			var all [2][]float64
			for range 7 {
				for i := range s {
					must(t, s[i].Reset())
					r := s[i].Runner().(*Runner)
					prompt := make([]int32, 480)
					for k := range prompt {
						prompt[k] = int32(k * 7 % m.Config.Vocab)
					}
					decoded(t, r, prompt, 8)
					must(t, r.stream.Synchronize())
					began := time.Now()
					decoded(t, r, nil, 64)
					all[i] = append(all[i], float64(time.Since(began).Nanoseconds())/64e3)
				}
			}
			for i := range all {
				slices.Sort(all[i])
				fmt.Printf("%s %s q8=%v: %.1f us (%.1f - %.1f)\n", spec, mode, i == 1, all[i][3], all[i][0], all[i][6])
			}
			s[0].Close()
			s[1].Close()
		}
	}
}

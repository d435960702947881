package exec

import (
	"testing"

	"gpt2scope/gpt2"
)

// wideVocab is one of more tokens than its decode kernel can draw from.
const wideVocab = "random:L=2,C=384,NH=6,V=400,T=256"

// TestAutoBySession: which mode runs is found anew by each call, and by a survey before any.
func TestAutoBySession(t *testing.T) {
	lib, _ := onStub(t)
	b := backendOn(t, lib, Options{})
	if mode, _ := b.Mode(); mode != Auto {
		t.Errorf("before all: mode %s", mode)
	}
	m := randomModel(t, wideVocab)
	decode := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	o := gpt2.Options{Batch: 1, Context: 64, Layers: gpt2.FirstLayers(2)}
	faster, err := b.Survey(m, o, decode)
	must(t, err)
	if mode, _ := b.Mode(); mode != Persistent {
		t.Errorf("after a survey: mode %s", mode)
	}
	s := session(t, m, b, gpt2.Options{})
	for _, f := range []struct {
		temperature float64
		mode        Mode
	}{{0, Persistent}, {1, Graph}, {0, Persistent}} {
		generate(t, s, []int32{1, 2}, gpt2.Generation{Tokens: 10, IgnoreEOS: true, Sampling: gpt2.Sampling{Temperature: f.temperature}})
		if mode, why := b.Mode(); mode != f.mode {
			t.Errorf("temperature %g: mode %s (%s)", f.temperature, mode, why)
		}
	}
	narrow, err := backendOn(t, lib, Options{}).Survey(randomModel(t, "random:L=2,C=64,NH=4,V=257,T=256"), o, decode)
	if err != nil || narrow.Work >= faster.Work {
		t.Errorf("work area of %d bytes where decode steps run as graphs, %d in one kernel (%v)", narrow.Work, faster.Work, err)
	}
}

// TestGains: the layers that draft fastest do, none where drafts fail, which costs at most 2 %.
func TestGains(t *testing.T) {
	for _, f := range []struct {
		us   [mostExits + 1]float64 // a token, by the layers that draft
		best int
	}{{[4]float64{43, 33, 35, 38}, 1}, {[4]float64{46, 49, 44, 41}, 3}, {[4]float64{46, 45.5, 47, 50}, 0},
		{[4]float64{43, 103, 30, 30}, 0}, {[4]float64{43, 52, 48, 47}, 0}} {
		var g gains
		var ahead [][2]int
		now, tokens, counts := uint64(1), 0, [mostExits + 1]int{}
		for launch := range 60 {
			layers, trial := g.next(6)
			ahead = append(ahead, [2]int{layers, trial})
			if launch < 1 {
				continue // two launches are ahead of what was read
			}
			by, most := ahead[0][0], ahead[0][1]
			ahead = ahead[1:]
			counts[by]++
			for made, wrong := 0, 0; made < 16; {
				p, n := &g.plain, 1
				if by > 0 && (most == 0 || wrong < most) {
					if p, n = &g.by[by-1], 3; f.us[by] > 100 {
						wrong, n = wrong+1, 1
					}
				}
				took := uint64(1000 * f.us[0])
				if p != &g.plain {
					took = uint64(1000 * f.us[by] * float64(n))
				}
				now += took
				p.took(now, now-took)
				p.tokens += float64(n - 1)
				made, tokens = made+n, tokens+n
			}
		}
		if counts[f.best] < 45 || float64(now) > 1.02*1000*f.us[f.best]*float64(tokens) && f.best == 0 {
			t.Errorf("%v: launches by layers that drafted %v, %.1f us a token", f.us, counts, float64(now)/1000/float64(tokens))
		}
	}
}

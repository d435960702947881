package report

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// insideKernel is a recording of decode steps in one kernel, on so many SMs. In attention every
// second SM has no part, and the times of each SM are kept of every third pass.
func insideKernel(layers, sms int) *traces.Trace {
	var names []string
	for l := range layers {
		for _, s := range []string{"ln_1+h.%d.attn.c_attn", "attn.sdpa", "attn.c_proj+h.%d.residual_1", "ln_2+h.%d.mlp.c_fc+h.%[1]d.mlp.gelu", "mlp.c_proj+h.%d.residual_2"} {
			if strings.Contains(s, "%") {
				s = fmt.Sprintf(s, l)
			}
			names = append(names, fmt.Sprintf("h.%d.%s", l, s))
		}
	}
	r, rnd := newRun(append(names, "ln_f+lm_head", "sample")...), rand.New(rand.NewPCG(1, 2))
	r.header.Recorder = traces.RecorderStamps
	thread, stream := traces.Thread(1, 10), traces.Stream(1, 0, 1, 7)
	for n := range 12 {
		pass := traces.Plain(traces.KindPass, thread, "decode step", r.now, 100)
		pass.ID, pass.Plan, pass.Value = uint64(n+1), 0, float64(100+n)
		r.events = append(r.events, pass)
		for tag, s := range r.header.Plans[0].Steps {
			length := 1500 + rnd.Int64N(800) + int64(10*n)
			k := traces.Plain(traces.KindKernel, stream, "decode_kernel (Linear)", r.now, length)
			k.Plan, k.Step, k.Parent = 0, int32(tag), pass.ID
			k.Inside = &traces.Inside{}
			each := make([]traces.Parts, sms)
			for sm := range each {
				if sm%2 == 1 && strings.Contains(s.Name, "sdpa") {
					continue
				}
				p := traces.Parts{Weights: rnd.Int64N(60), Inputs: 400 + rnd.Int64N(200), Compute: 600 + rnd.Int64N(200)}
				p.Imbalance = length - p.Sum()
				each[sm] = p
				k.Inside.SMs++
				k.Inside.Add(p)
			}
			of := int64(k.Inside.SMs)
			k.Inside.Parts = traces.Parts{Weights: k.Inside.Weights / of, Inputs: k.Inside.Inputs / of, Compute: k.Inside.Compute / of, Imbalance: k.Inside.Imbalance / of}
			if n%3 == 1 {
				k.Inside.Each = each
			}
			k.Inside.Fit(length)
			r.events = append(r.events, k)
			r.now += length
		}
	}
	return fixtures.Trace(&r.header, r.events...)
}

// TestSMs: the page of a recording that has the times of each SM draws them, for a pass of median
// length; that of others has no such picture.
func TestSMs(t *testing.T) {
	b := open(t, insideKernel(12, 132), 1000, 1400)
	if got := eval[int](b, `document.querySelectorAll("#stage-table td").length && gpt2scope.page.sms.n`); got != 132 {
		t.Errorf("%d SMs", got)
	}
	// A colour for each kind of time, and blank where every second SM has no part in attention.
	colours := func() string {
		return eval[string](b, `(() => { const c = document.getElementById("sm-map"), r = c.width / c.clientWidth, d = c.getContext("2d").getImageData(0, 0, c.width, c.height), s = gpt2scope.page.sms.steps[1];
const h = gpt2scope.sms, x = (t) => Math.round((34 + (t - h.from) / (h.to - h.from) * (c.clientWidth - 38)) * r), y = (sm) => Math.round((4 + (sm + 0.5) * h.height) * r);
const at = 132, colour = (t, sm) => [0, 1, 2].map((k) => d.data[4 * (y(sm) * c.width + x(s.from + t)) + k]).join();
return [colour(h.weights[at] + h.inputs[at] / 2, 0), colour(h.weights[at] + h.inputs[at] + h.compute[at] / 2, 0), colour(800, 1)].join(" "); })()`)
	}
	eval[any](b, `gpt2scope.viewSMs(gpt2scope.page.sms.steps[1].from, gpt2scope.page.sms.steps[1].to)`)
	at := strings.Fields(colours())
	if len(at) != 3 || at[0] == at[1] || at[1] == at[2] || at[2] != "255,255,255" {
		t.Errorf("waiting, computing and no part have the colours %q", at)
	}
	b.run(chromedp.Click(chromedp.CSS("#sm-out")))
	for range 8 {
		b.run(chromedp.Click(chromedp.CSS("#sm-out")))
	}
	if got := eval[bool](b, `gpt2scope.sms.from === 0 && gpt2scope.sms.to === gpt2scope.page.sms.span`); !got {
		t.Error("zoomed out, it does not show the whole pass")
	}
	b.run(chromedp.Click(chromedp.CSS("#sm-in")))
	if got := eval[bool](b, `Math.abs((gpt2scope.sms.to - gpt2scope.sms.from) * 2 - gpt2scope.page.sms.span) < 1`); !got {
		t.Error("zoomed in, it does not show half of the pass")
	}
	b.run(chromedp.Click(chromedp.CSS("#sm-map")))
	text := eval[string](b, `document.getElementById("sm-text").textContent`)
	if !strings.HasPrefix(text, "SM ") || !strings.Contains(text, "h.") || !strings.Contains(text, "computes ") && !strings.Contains(text, "no part") {
		t.Errorf("a click says %q", text)
	}

	var page bytes.Buffer
	fixtures.Check(t, Write(&page, insideKernel(2, 8), Options{Device: -1}))
	fixtures.Says(t, "", page.String(), "Inside the kernel: 8 SMs in a decode step after 10", "the median of 4 whose SMs are recorded", "waits for inputs", "data-compute=")
	page.Reset()
	fixtures.Check(t, Write(&page, layered(), Options{Device: -1}))
	if strings.Contains(page.String(), `id="sm-map"`) || strings.Contains(page.String(), `data-key="imbalance"`) {
		t.Error("a page without times of SMs has their picture or columns")
	}
}

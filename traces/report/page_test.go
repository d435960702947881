package report

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gpt2scope/internal/chromium"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
)

// TestNumbers reads the table from the page: its rows are those of Summarize, to the digits that are shown, and sum to
// the wall time.
func TestNumbers(t *testing.T) {
	for _, name := range []string{"graph.sqlite", "eager.sqlite", "floors"} {
		t.Run(name, func(t *testing.T) {
			tr := withCosts(t)
			if name != "floors" {
				tr = samples.Load(t, name)
			}
			table := require.Value(tables.Summarize(tr, tables.ByStage, -1))(t)
			slices.SortStableFunc(table.Rows[:len(table.Rows)-1], func(a, b tables.Row) int { return cmp.Compare(b.Exclusive, a.Exclusive) })
			b := openAs(t, "run.json.gz", tr, 1440, 900)
			heads := eval[[]string](b, `[...document.querySelectorAll("#stage-table thead th")].map((e) => e.textContent.trim())`)
			rows := eval[[][]string](b, `[...document.querySelectorAll("#stage-table tbody tr")].map((r) => [...r.cells].map((c) => (c.querySelector(".stage, .idle") || c).textContent.trim()))`)
			if len(rows) != len(table.Rows) {
				t.Fatalf("%d rows on the page, %d in the table", len(rows), len(table.Rows))
			}
			var total float64
			for i, cells := range rows {
				r := &table.Rows[i]
				cell := func(head string) string {
					for j, h := range heads {
						if h == head {
							return cells[j]
						}
					}
					return ""
				}
				equal := func(head string, want float64, digits int, shown bool) {
					t.Helper()
					got := cell(head)
					if !shown {
						if got != "" {
							t.Errorf("row %d %s: %s is %q, of nothing", i, r.Name, head, got)
						}
						return
					}
					v, err := strconv.ParseFloat(strings.ReplaceAll(got, ",", ""), 64)
					if err != nil || math.Abs(v-want) > 0.5000001*math.Pow10(-digits) {
						t.Errorf("row %d %s: %s is %q, not %.*f", i, r.Name, head, got, digits, want)
					}
				}
				// rate compares about three digits.
				rate := func(head string, n, ns int64, scale, slack float64) {
					t.Helper()
					if name != "floors" { // the recording has no costs
						return
					}
					want := scale * float64(n) / float64(max(1, ns))
					if v, err := strconv.ParseFloat(strings.ReplaceAll(cell(head), ",", ""), 64); n > 0 && (err != nil || math.Abs(v-want) > 0.006*want+slack) || n == 0 && cell(head) != "" {
						t.Errorf("row %d %s: %s is %q, not %g", i, r.Name, head, cell(head), want)
					}
				}
				if !strings.HasSuffix(cell("Stage"), r.Name) || cell("Phase") != r.Phase {
					t.Errorf("row %d is %q of %q, not %q of %q", i, cell("Stage"), cell("Phase"), r.Name, r.Phase)
				}
				share, ok := table.Share(r)
				if !ok {
					t.Error("shares are withheld")
				}
				work := r.Kind == tables.RowWork || r.Kind == tables.RowOther
				equal("Time µs", float64(r.Exclusive)/1e3, 3, true)
				equal("Copies µs", float64(r.Copies)/1e3, 3, r.Copies > 0)
				equal("% of wall", share, 2, true)
				equal("Calls", float64(r.Calls), 0, r.Calls > 0)
				equal("Kernels", float64(r.Kernels), 0, r.Kernels > 0)
				if name != "floors" {
					equal("Host µs", float64(r.Host)/1e3, 3, r.Host > 0)
				}
				equal("GPU µs", float64(r.Busy)/1e3, 3, work || r.Kernels > 0)
				equal("Median µs", float64(r.Median)/1e3, 3, r.Median > 0)
				rate("GB/s", r.Bytes, r.Exclusive, 1, 0)
				rate("TFLOP/s", r.FLOPs, r.Exclusive, 1e-3, 0.0005)
				v, err := strconv.ParseFloat(cell("Time µs"), 64)
				if err != nil {
					t.Error(err)
				}
				total += v
			}
			wall := fmt.Sprintf("%.3f", float64(table.Wall)/1e3)
			if shown := eval[string](b, `document.getElementById("sum").textContent`); shown != wall || fmt.Sprintf("%.3f", total) != wall {
				t.Errorf("the page says %s µs, its rows sum to %.3f, the wall time is %s", shown, total, wall)
			}
		})
	}
}

// TestZoom zooms and pans with all that can.
func TestZoom(t *testing.T) {
	b := open(t, samples.Load(t, "graph.sqlite"), 1440, 900)
	length := func(r [2]float64) float64 { return r[1] - r[0] }
	was := b.visible()
	to := func(what string, ok func(was, now [2]float64) bool, actions ...action) {
		t.Helper()
		b.run(actions...)
		now := b.visible()
		if !ok(was, now) {
			t.Errorf("%s: from %v to %v", what, was, now)
		}
		was = now
	}
	narrower := func(was, now [2]float64) bool { return length(now) < 0.95*length(was) }
	wider := func(was, now [2]float64) bool { return length(now) > 1.05*length(was) }
	moved := func(later bool) func(was, now [2]float64) bool {
		return func(was, now [2]float64) bool {
			return math.Abs(length(now)-length(was)) < 1e-3*length(was) && (now[0] > was[0]) == later && now[0] != was[0]
		}
	}
	key := func(k string) action { return chromedp.SendKeys(chromedp.CSS("#tracks"), k) }
	click := func(id string) action { return chromedp.Click(chromedp.CSS(id)) }
	to("the button +", narrower, click("#zoom-in"))
	to("the button +", narrower, click("#zoom-in"))
	to("the button -", wider, click("#zoom-out"))
	to("the button right", moved(true), click("#right"))
	to("the button left", moved(false), click("#left"))
	to("the key +", narrower, key("+"))
	to("the key -", wider, key("-"))
	to("the key right", moved(true), key(kb.ArrowRight))
	to("the key left", moved(false), key(kb.ArrowLeft))
	at := eval[[2]float64](b, `(() => { const r = document.getElementById("tracks").getBoundingClientRect(); return [r.left + 700, r.top + 40]; })()`)
	wheel := func(dy float64) action {
		return chromedp.MouseEvent(input.DispatchMouseEventTypeMouseWheel, at[0], at[1], func(p *input.DispatchMouseEventParams) { p.DeltaX, p.DeltaY = 1e-6, dy })
	}
	to("the wheel", narrower, wheel(-120))
	to("the wheel back", wider, wheel(120))
	to("a drag to the left", moved(true), chromedp.MouseEvent(chromedp.MousePressed, at[0], at[1], chromedp.ButtonLeft),
		chromedp.MouseEvent(chromedp.MouseMoved, at[0]-60, at[1], chromedp.ButtonLeft), chromedp.MouseEvent(chromedp.MouseReleased, at[0]-60, at[1], chromedp.ButtonLeft))
	to("the button All", wider, click("#all"))
	to("the key 0", narrower, key("0"))
	before, after := was, eval[string](b, `document.getElementById("range").textContent`)
	to("a gap", func(_, now [2]float64) bool {
		return now[0] <= eval[float64](b, `Number(document.querySelector(".gap").dataset.from)`) && now[1] >= eval[float64](b, `Number(document.querySelector(".gap").dataset.to)`) && now != before
	}, chromedp.Click(chromedp.CSS(".gap")))
	if now := eval[string](b, `document.getElementById("range").textContent`); now == after {
		t.Errorf("the range is still said to be %s", now)
	}
	// There is an end to it: never less than some ns, never more than the recording.
	for range 60 {
		b.run(click("#zoom-in"))
	}
	if l := length(b.visible()); l < 20 || l > 1000 {
		t.Errorf("zoomed in all the way %g ns are visible", l)
	}
	b.run(click("#all"), click("#zoom-out"), click("#zoom-out"))
	if l, whole := length(b.visible()), eval[float64](b, `gpt2scope.page.span`); l < whole || l > 1.1*whole {
		t.Errorf("zoomed out all the way %g ns of %g are visible", l, whole)
	}
}

const unfoldAll = `document.querySelectorAll("button.fold[aria-expanded=false]").forEach((b) => b.click())`

// TestStage clicks on each stage: its kernels are listed, and are those that the table sums.
func TestStage(t *testing.T) {
	for name, tr := range map[string]*traces.Trace{"graph": samples.Load(t, "graph.sqlite"), "cpu": host(t), "layers": layered()} {
		table := require.Value(tables.Summarize(tr, tables.ByStage, -1))(t)
		b := open(t, tr, 1440, 900)
		if name == "layers" {
			eval[any](b, unfoldAll)
		}
		for i, r := range table.Rows {
			if r.Kind != tables.RowWork && r.Kind != tables.RowOther {
				continue
			}
			b.run(chromedp.Click(chromedp.CSS(fmt.Sprintf(`#stage-table tr[data-rows="%d"] button.stage`, i))))
			foot := eval[[]string](b, `[...document.querySelectorAll("#kernel-table tfoot tr > *")].map((c) => c.textContent)`)
			names := eval[int](b, `document.querySelectorAll("#kernel-table tbody tr").length`)
			if len(foot) < 3 || foot[1] != humanize.Thousands(int64(r.Kernels)) || foot[2] != micros(r.Busy) || names < 1 {
				t.Errorf("of %s %s: %d names, in all %v, not %d and %s", r.Phase, r.Name, names, foot, r.Kernels, micros(r.Busy))
			}
			if of := eval[string](b, `document.getElementById("kernels-of").textContent`); !strings.Contains(of, r.Name) || !strings.Contains(of, micros(r.Exclusive)) {
				t.Errorf("the list is said to be of %q, not of %s", of, r.Name)
			}
			if n := eval[int](b, `gpt2scope.highlighted()`); n < r.Kernels {
				t.Errorf("of %s %d events are highlighted, less than its %d kernels", r.Name, n, r.Kernels)
			}
			if s := eval[string](b, `document.querySelector('tr[aria-current="true"]').dataset.rows`); s != strconv.Itoa(i) {
				t.Errorf("row %s is shown as selected, not %d", s, i)
			}
		}
		b.run(chromedp.SendKeys(chromedp.CSS("#tracks"), kb.Escape))
		if n := eval[int](b, `gpt2scope.highlighted()`); n != 0 {
			t.Errorf("after Escape %d events are highlighted", n)
		}
	}
}

// TestOperations shows a recording without stages or kernels by operation, and finds the events of each.
func TestOperations(t *testing.T) {
	tr := require.Value(load.Load("../testdata/kineto-cpu.json.gz"))(t)
	table, err := tables.SummarizeAny(tr, -1)
	if err != nil || table.By != tables.ByOp {
		t.Fatal(err, table.By)
	}
	b := open(t, tr, 1440, 900)
	for i, r := range table.Rows {
		if r.Kind != tables.RowWork || i > 3 { // aten::sum, the next one, calls itself
			continue
		}
		b.run(chromedp.Click(chromedp.CSS(fmt.Sprintf(`#stage-table tr[data-rows="%d"] button.stage`, i))))
		if n, busy := eval[int](b, `gpt2scope.highlighted()`), eval[string](b, `document.querySelector("#kernel-table tfoot").rows[0].cells[2].textContent`); n != r.Calls || busy != micros(r.Busy) {
			t.Errorf("%s: %d events are found, with %s µs, not %d with %s", r.Name, n, busy, r.Calls, micros(r.Busy))
		}
	}
}

// TestLayers shows one row for each stage over all layers, which unfolds to its layers, and lists the kernels of all of
// them.
func TestLayers(t *testing.T) {
	tr := layered()
	table := require.Value(tables.Summarize(tr, tables.ByStage, -1))(t)
	folded := tables.FoldLayers(table)
	slices.SortStableFunc(folded, func(a, b tables.Row) int { return cmp.Compare(b.Exclusive, a.Exclusive) })
	b := open(t, tr, 1440, 900)
	shown := func() []string {
		return eval[[]string](b, `[...document.querySelectorAll("#stage-table tbody tr")].filter((r) => !r.hidden && r.dataset.kind === "work").map((r) => r.dataset.name + " " + r.querySelector(".time").textContent)`)
	}
	want := func(layers bool) []string {
		var rows []string
		for _, f := range folded {
			if f.Kind != tables.RowWork {
				continue
			}
			rows = append(rows, f.Name+" "+micros(f.Exclusive))
			for _, i := range f.Of {
				if layers && len(f.Of) > 1 {
					rows = append(rows, table.Rows[i].Name+" "+micros(table.Rows[i].Exclusive))
				}
			}
		}
		return rows
	}
	if got := shown(); !slices.Equal(got, want(false)) || len(got) != 4 {
		t.Errorf("the page has %q", got)
	}
	stage := folded[0]
	if stage.Name != "h.N.attn.c_attn" || len(stage.Of) != 3 {
		t.Fatalf("%+v", stage)
	}
	foot := func() string { return eval[string](b, `document.querySelector("#kernel-table tfoot td").textContent`) }
	b.run(chromedp.Click(chromedp.CSS(`tr[data-name="h.N.attn.c_attn"] button.stage`)))
	if got := foot(); got != humanize.Thousands(int64(stage.Kernels)) {
		t.Errorf("%s kernels are listed, not %d", got, stage.Kernels)
	}
	// An event of a layer that is not shown selects the stage.
	eval[any](b, `gpt2scope.selectStage(3)`)
	if got := eval[string](b, `document.querySelector('tr[aria-current="true"]').dataset.name`); got != stage.Name {
		t.Errorf("%s is selected, not %s", got, stage.Name)
	}
	b.run(chromedp.SendKeys(chromedp.CSS(`tr[data-name="h.N.attn.c_attn"] button.fold`), kb.Enter))
	if got := len(shown()); got != 4+3 {
		t.Errorf("unfolded, the page has %d rows", got)
	}
	eval[any](b, `gpt2scope.selectStage(3)`)
	if got, name := foot(), table.Rows[3].Name; got != humanize.Thousands(int64(table.Rows[3].Kernels)) || eval[string](b, `document.querySelector('tr[aria-current="true"]').dataset.name`) != name {
		t.Errorf("%s kernels of %s are listed, not %d", got, name, table.Rows[3].Kernels)
	}
	eval[any](b, unfoldAll)
	if got := shown(); !slices.Equal(got, want(true)) {
		t.Errorf("with all layers, the page has %q", got)
	}
	// Layers stay below their stage when the table is sorted.
	b.run(chromedp.Click(chromedp.CSS(`#stage-table button[data-key="time"]`)))
	parent, last := "", math.Inf(1)
	for _, row := range eval[[][2]string](b, `[...document.querySelectorAll("#stage-table tbody tr")].filter((r) => r.dataset.kind === "work").map((r) => [r.dataset.name, r.className + " " + r.dataset.ns])`) {
		isLayer := strings.HasPrefix(row[1], "layer ")
		if !isLayer {
			parent, last = row[0], math.Inf(1)
			continue
		}
		ns, err := strconv.ParseFloat(strings.TrimPrefix(row[1], "layer "), 64)
		if traces.InAnyLayer(row[0]) != parent || err != nil || ns > last {
			t.Errorf("%s with %g ns lies below %s and %g ns", row[0], ns, parent, last)
		}
		last = ns
	}
}

// TestPointer moves the mouse over a kernel and clicks on it: it is described, its stage is chosen, and its call is
// found by correlation id.
func TestPointer(t *testing.T) {
	b := open(t, withCosts(t), 1440, 1200)
	at := eval[[3]float64](b, `(() => {
		const g = gpt2scope, item = g.layout.items.find((i) => i.band && i.band.track.kind === "stream"), i = 5, v = g.view;
		const r = document.getElementById("tracks").getBoundingClientRect();
		const t = (item.band.start[i] + item.band.end[i]) / 2;
		return [r.left + v.gutter + (t - v.from) * (v.width - v.gutter) / (v.to - v.from), r.top + item.y + 8, item.band.row[i]];
	})()`)
	b.run(chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
	tip := eval[string](b, `document.getElementById("tip").hidden ? "" : document.getElementById("tip").innerText`)
	fixtures.Says(t, "", tip, "gemm_", "µs at 0.", "stage decode step", "it normalises the residual stream before the attention; then computes queries", "grid 12, block 128, 40 registers", "stream 7, correlation 6")
	b.run(chromedp.MouseClickXY(at[0], at[1]))
	if row := eval[string](b, `document.querySelector('#stage-table tr[aria-current="true"]').dataset.rows`); row != strconv.Itoa(int(at[2])) {
		t.Errorf("row %s is selected, not %g", row, at[2])
	}
	linked := eval[[]string](b, `gpt2scope.selected().linked.map((l) => l.band.track.kind + " " + l.band.link[l.i])`)
	if len(linked) != 1 || linked[0] != "api 6" {
		t.Errorf("the kernel is joined with %v", linked)
	}
	if text := eval[string](b, `document.getElementById("event").textContent`); !strings.Contains(text, "correlation 6") {
		t.Errorf("the event is said to be %q", text)
	}
}

// TestSearch finds events by name, and goes from one to the next.
func TestSearch(t *testing.T) {
	tr := samples.Load(t, "graph.sqlite")
	want := 0
	for i := range tr.Events {
		if e := &tr.Events[i]; strings.Contains(strings.ToLower(e.Name), "graphlaunch") && e.Kind != traces.KindNode {
			want++
		}
	}
	if want < 2 {
		t.Fatalf("the sample has %d graph launches", want)
	}
	b := open(t, tr, 1440, 900)
	b.run(chromedp.SendKeys(chromedp.CSS("#search"), "GraphLaunch"))
	if n := eval[int](b, `gpt2scope.highlighted()`); n != want {
		t.Errorf("%d events are found, not %d", n, want)
	}
	seen := map[float64]bool{}
	for i := range want {
		b.run(chromedp.Click(chromedp.CSS("#next")))
		at := eval[[]float64](b, `(({band, i}) => [band.start[i], band.end[i]])(gpt2scope.selected())`)
		if v := b.visible(); at[0] < v[0] || at[1] > v[1] {
			t.Errorf("match %d at %v is not in view: %v", i, at, v)
		}
		seen[at[0]] = true
		if text := eval[string](b, `document.getElementById("event").textContent`); !strings.Contains(strings.ToLower(text), "graphlaunch") {
			t.Errorf("the event is said to be %q", text)
		}
	}
	if len(seen) != want {
		t.Errorf("next went to %d events of %d", len(seen), want)
	}
	b.run(chromedp.Clear(chromedp.CSS("#search")), chromedp.SendKeys(chromedp.CSS("#search"), "no such name"))
	if text := eval[string](b, `document.getElementById("found").textContent`); text != "0 matches" {
		t.Errorf("of a name that is not there it says %q", text)
	}
}

// TestSort sorts the table by calls, both ways, and back to the order of time.
func TestSort(t *testing.T) {
	b := open(t, samples.Load(t, "graph.sqlite"), 1440, 900)
	order := func() []float64 {
		return eval[[]float64](b, `(() => { const at = document.querySelector('#stage-table button[data-key="calls"]').closest("th").cellIndex;
			return [...document.querySelectorAll("#stage-table tbody tr")].map((r) => Number(r.cells[at].textContent.replaceAll(",", ""))); })()`)
	}
	sorted := func(v []float64, sign float64) bool {
		for i := 1; i < len(v); i++ {
			if sign*v[i-1] > sign*v[i] {
				return false
			}
		}
		return true
	}
	plain := order()
	if sorted(plain, 1) || sorted(plain, -1) {
		t.Fatal("the table is sorted to begin with, so that the test says nothing")
	}
	for _, sign := range []float64{-1, 1} {
		b.run(chromedp.Click(chromedp.CSS(`#stage-table button[data-key="calls"]`)))
		if now := order(); !sorted(now, sign) || len(now) != len(plain) {
			t.Errorf("not sorted: %v", now)
		}
	}
	b.run(chromedp.Click(chromedp.CSS(`#stage-table button[data-key="calls"]`)))
	if now := order(); fmt.Sprint(now) != fmt.Sprint(plain) {
		t.Errorf("the third click does not bring back the order: %v", now)
	}
}

// TestWidths has no page wider than its window.
func TestWidths(t *testing.T) {
	for _, width := range []int64{390, 768, 1440} {
		if got := eval[float64](open(t, insideKernel(12, 132), width, 1200), `document.getElementById("sm-map").getBoundingClientRect().width / innerWidth`); got < 0.8 || got > 1 {
			t.Errorf("in a window of %d pixels the picture of SMs takes %g of it", width, got)
		}
		b := open(t, withCosts(t), width, 800)
		got := eval[[]int](b, `[document.documentElement.scrollWidth, innerWidth]`)
		if int64(got[0]) > width || int64(got[1]) != width {
			t.Errorf("in a window of %d pixels the page has %d of %d", width, got[0], got[1])
		}
		// The name, the time and its share can be read without scrolling.
		if out := eval[[]string](b, `(() => {
			const box = document.querySelector("#stages .table").getBoundingClientRect();
			return [...document.querySelectorAll("#stage-table tbody tr")].flatMap((tr) => [tr.querySelector(".name"), tr.querySelector(".time"), tr.querySelector(".pc")])
				.filter((e) => e.getBoundingClientRect().right > box.right || e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent);
		})()`); len(out) > 0 {
			t.Errorf("in a window of %d pixels the cells %q are cut", width, out)
		}
		if out := eval[[]string](b, `[...document.querySelectorAll("main section, canvas, .tools")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.id || e.className)`); len(out) > 0 {
			t.Errorf("in a window of %d pixels %v stand out", width, out)
		}
	}
}

// TestHostile has names that would run if they were not text.
func TestHostile(t *testing.T) {
	b := open(t, hostile(), 1440, 900)
	b.run(chromedp.SendKeys(chromedp.CSS("#search"), "img"), chromedp.Click(chromedp.CSS("#next")), chromedp.Click(chromedp.CSS("button.stage")))
	if n := eval[int](b, `document.querySelectorAll("img, iframe, main script, body style").length`); n != 0 {
		t.Errorf("%d elements were made of names", n)
	}
	if eval[bool](b, `"broken" in window`) {
		t.Error("a name ran as script")
	}
	if text := eval[string](b, `document.getElementById("stage-table").textContent`); !strings.Contains(text, evil) {
		t.Errorf("the name is not shown as it is: %q", text)
	}
}

// TestPolicy has the browser refuse what a page could be made to load or run.
func TestPolicy(t *testing.T) {
	b := open(t, withCosts(t), 1440, 900)
	eval[any](b, `new Promise((done) => {
		document.body.insertAdjacentHTML("beforeend", "<img src='https://example.com/x.png' onerror='window.broken = 1'><b onclick='window.broken = 1'>x</b>");
		document.body.lastChild.click();
		const s = document.createElement("script");
		s.textContent = "window.broken = 1";
		document.body.append(s);
		fetch("https://example.com/").then(() => { window.broken = 1; }, () => {}).then(() => setTimeout(done, 100));
	})`)
	if eval[bool](b, `"broken" in window`) {
		t.Error("the page runs what is not its own")
	}
	refused, requests := 0, 0
	problems := b.Misdeeds() // they were to come, and came no further
	for _, p := range problems {
		switch {
		case strings.Contains(p, "Content Security Policy"):
			refused++
		case strings.HasPrefix(p, "request: "):
			requests++
		}
	}
	if refused < 4 || requests > 2 || refused+requests != len(problems) {
		t.Errorf("the browser says %q", problems)
	}
}

// TestDark follows the scheme that the browser prefers, on canvas too.
func TestDark(t *testing.T) {
	b := open(t, withCosts(t), 1440, 900)
	for _, scheme := range []string{"dark", "light"} {
		b.scheme(scheme)
		// The first pixel of the axis is of the panel's colour.
		comparison := map[string]string{"dark": "pixel < 100 && text > 150", "light": "pixel > 150 && text < 100"}[scheme]
		if _, err := chromedp.Run(b.Context, chromedp.Poll[bool](`(() => {
			const c = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
			c.drawImage(document.getElementById("axis"), -1, -1);
			const pixel = c.getImageData(0, 0, 1, 1).data[0], text = Number(getComputedStyle(document.body).color.match(/\d+/)[0]);
			return `+comparison+`;
		})()`, chromedp.WithPollingTimeout(10*time.Second))); err != nil {
			t.Errorf("the page does not become %s: %v", scheme, err)
		}
	}
}

// insideKernel is a recording of decode steps in one kernel, on so many SMs. In attention every second SM has no part,
// and the times of each SM are kept of every third pass.
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

// TestSMs: the page of a recording that has the times of each SM draws them, for a pass of median length; that of
// others has no such picture.
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
	require.NoError(t, Write(&page, insideKernel(2, 8), Options{Device: -1}))
	fixtures.Says(t, "", page.String(), "Inside the kernel: 8 SMs in a decode step after 10", "the median of 4 whose SMs are recorded", "waits for inputs", `data-key="compute"`)
	page.Reset()
	require.NoError(t, Write(&page, layered(), Options{Device: -1}))
	if strings.Contains(page.String(), `id="sm-map"`) || strings.Contains(page.String(), `data-key="imbalance"`) {
		t.Error("a page without times of SMs has their picture or columns")
	}
}

// browser is a report in headless Chromium.
type browser struct {
	*chromium.Browser
	t *testing.T
}

// open writes the page of a trace and opens it in a window of width x height pixels.
func open(t *testing.T, tr *traces.Trace, width, height int64) *browser {
	t.Helper()
	return openAs(t, "run.json.gz", tr, width, height)
}

// openAs is open for a recording of that name.
func openAs(t *testing.T, name string, tr *traces.Trace, width, height int64) *browser {
	t.Helper()
	b := &browser{t: t, Browser: chromium.Open(t, "report.html", func() ([]byte, error) {
		var page bytes.Buffer
		err := Write(&page, tr, Options{Name: name, Device: -1})
		return page.Bytes(), err
	}, width, height)}
	require.Value(chromedp.Run(b.Context, chromedp.Poll[bool](`window.gpt2scope && gpt2scope.view.frames > 0`)))(t)
	return b
}

// action is an input to a page.
type action = chromedp.Action[chromedp.Void]

func (b *browser) run(actions ...action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.Context, actions...))
}

// eval returns the value of an expression of the page, once its pictures are drawn.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.Context, chromedp.Evaluate[T](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(`+expression+`))))`, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return v
}

// visible returns the visible range of the timeline in ns.
func (b *browser) visible() [2]float64 {
	b.t.Helper()
	return eval[[2]float64](b, `[gpt2scope.view.from, gpt2scope.view.to]`)
}

// scheme makes the browser prefer light or dark.
func (b *browser) scheme(name string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}); err != nil {
		b.t.Fatal(err)
	}
}

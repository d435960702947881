package report

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// classes is how many stages have a colour of their own; the others are grey.
const classes = 12

// stageColours are the colours of GPT-2's stages, the same on every page; the last, of short ones, is grey. A fused stage
// has that of its part that stands further up.
var stageColours = [][]string{{"mlp.c_fc"}, {"mlp.c_proj"}, {"attn.c_attn"}, {"attn.c_proj"}, {"lm_head"}, {"attn.sdpa"},
	{"sample"}, {"mlp.gelu"}, {"ln_1"}, {"ln_2"}, {"residual_1"}, {"residual_2"}, {"wte", "ln_f"}}

// knownColour returns the colour of a stage of GPT-2, -1 for another.
func knownColour(name string) int {
	parts := strings.Split(layer().ReplaceAllString(name, ""), "+")
	return slices.IndexFunc(stageColours, func(names []string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(names, part) })
	})
}

// coloursOf gives each stage, in all phases and layers, a colour: that which the program gave its range, else one that
// depends on its name, so that a stage looks alike on every page. Of two that would look alike on this page, the one
// that took less has the next colour that is free. own are the program's colours that take the place of others.
func coloursOf(t *tables.Table, rows []tables.Row) (colours map[string]int, own map[int]string) {
	times := map[string]int64{}
	var names []string
	for i := range rows {
		if r := &rows[i]; r.Kind == tables.RowWork {
			if _, ok := times[r.Name]; !ok {
				names = append(names, r.Name)
			}
			times[r.Name] += r.Exclusive
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(times[b], times[a]) })
	program, different := map[string]string{}, map[string]bool{}
	if t.By == tables.ByStage && t.Window != nil && t.Window.Trace != nil {
		for name, colour := range t.Window.Header.Colours {
			key := traces.InAnyLayer(name)
			program[key] = min(colour, cmp.Or(program[key], colour)) // whatever the order of the map
		}
	}
	programs := func(name string) string {
		last := name[strings.LastIndex(name, "/")+1:]
		return cmp.Or(program[name], program[traces.InAnyLayer(last)])
	}
	for _, name := range names {
		different[programs(name)] = true
	}
	if len(different) < 2 { // one colour for all tells nothing apart
		clear(program)
	}
	colours, own = map[string]int{}, map[int]string{}
	used := map[int]bool{}
	for _, name := range names {
		class := knownColour(name)
		if class < 0 {
			h := fnv.New32a()
			h.Write([]byte(name))
			class = int(h.Sum32() % classes)
		}
		if colour := programs(name); knownColour(name) < 0 || colour != "" {
			tries := 0
			for ; used[class] && tries < classes; tries++ {
				class = (class + 1) % classes
			}
			if tries == classes { // all are in use
				class = classes
			} else if colour != "" {
				own[class] = colour
			}
		}
		colours[name], used[class] = class, true
	}
	return colours, own
}

// style writes the program's colours in place of those of the page, so bright on a light page, and so dark on a dark
// one, that text on them can be read.
func style(own map[int]string) string {
	var light, dark strings.Builder
	for class := range classes {
		if c := own[class]; c != "" {
			fmt.Fprintf(&light, " --c%d: %s;", class, toned(c, 255, 0.55))
			fmt.Fprintf(&dark, " --c%d: %s;", class, toned(c, 0, 0.35))
		}
	}
	if light.Len() == 0 {
		return ""
	}
	return "\n:root {" + light.String() + " }\n@media (prefers-color-scheme: dark) { :root {" + dark.String() + " } }\n"
}

// toned mixes a colour with white, or black, until its brightness is at least, or at most, so much.
func toned(colour string, with, brightness float64) string {
	v, _ := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	c := [3]float64{float64(v >> 16 & 255), float64(v >> 8 & 255), float64(v & 255)}
	is := 0.299*c[0] + 0.587*c[1] + 0.114*c[2]
	share := min(1, max(0, (255*brightness-is)/(with-is)))
	for i := range c {
		c[i] += share * (with - c[i])
	}
	return fmt.Sprintf("#%02x%02x%02x", int(c[0]), int(c[1]), int(c[2]))
}

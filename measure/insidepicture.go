package measure

import (
	"bufio"
	"errors"
	"fmt"
	"html"
	"io"
	"strings"

	"gpt2scope/gpt2"
)

// What a picture of an [gpt2.InsideDecode] shows, and in which colour.
var insideColours = []struct{ what, colour string }{
	{"waiting for weights", "#e08a1e"},
	{"waiting for inputs", "#d5d9e0"},
	{"computing, even steps", "#2f6fb2"},
	{"computing, odd steps", "#4fa3a5"},
}

// DrawInside draws as SVG what each SM did in the last decode step of the first launch: a line
// for each SM, from left to right the time. The colours of steps alternate; white is waiting for
// other SMs in a step in which the SM has no part, or after its own.
func DrawInside(to io.Writer, model string, d *gpt2.InsideDecode) error {
	if len(d.Launches) == 0 || d.Tokens < 2 {
		return errors.New("there is no decode step to draw")
	}
	const left, top, right, width, line = 56, 56, 32, 1400, 4
	launch, n := d.Launches[0], len(d.Steps)
	last := (d.Tokens - 1) * n
	begin, end := published(launch[(last-1)*d.Blocks:last*d.Blocks]), published(launch[len(launch)-d.Blocks:])
	if end <= begin {
		return errors.New("the decode step has no times to draw")
	}
	scale := float64(width) / float64(end-begin)
	x := func(t uint64) float64 { return left + scale*float64(min(max(t, begin), end)-begin) }
	w := bufio.NewWriter(to)
	height := top + line*d.Blocks + 40
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", left+width+right, height)
	fmt.Fprintf(w, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"20\" font-size=\"15\">One decode step of %s inside the kernel: %.1f us on %d SMs</text>\n",
		left, html.EscapeString(model), float64(end-begin)/1e3, d.Blocks)
	at := left
	for _, c := range insideColours {
		fmt.Fprintf(w, "<rect x=\"%d\" y=\"30\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"41\">%s</text>\n", at, c.colour, at+17, c.what)
		at += 40 + 7*len(c.what)
	}
	paths := make([]strings.Builder, len(insideColours))
	draw := func(colour, sm int, from, to float64) {
		if to-from >= 0.05 {
			fmt.Fprintf(&paths[colour], "M%.1f %dh%.1fv%dh%.1fz", from, top+line*sm, to-from, line-1, from-to)
		}
	}
	for i := last; i < len(launch)/d.Blocks; i++ {
		before := published(launch[(i-1)*d.Blocks : i*d.Blocks])
		for sm, b := range launch[i*d.Blocks : (i+1)*d.Blocks] {
			if b.Published == 0 {
				continue
			}
			ready := max(b.Ready, min(before, b.Published))
			arrived := max(b.Arrived, ready)
			draw(0, sm, x(before), x(ready))
			draw(1, sm, x(ready), x(arrived))
			draw(2+i%2, sm, x(arrived), x(b.Published))
		}
	}
	for i := range paths {
		fmt.Fprintf(w, "<path fill=\"%s\" d=\"%s\"/>\n", insideColours[i].colour, paths[i].String())
	}
	for sm := 0; sm < d.Blocks; sm += 20 {
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">SM %d</text>\n", left-5, top+line*sm+8, sm)
	}
	for _, part := range []float64{0, 0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(w, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%.1f us</text>\n", left+part*width, top+line*d.Blocks+18, part*float64(end-begin)/1e3)
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

// published is when the last block had published.
func published(blocks []gpt2.BlockTimes) (last uint64) {
	for _, b := range blocks {
		last = max(last, b.Published)
	}
	return last
}

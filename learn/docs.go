package learn

import (
	"context"
	"fmt"
	"strings"
)

// judged is the result of a lesson by a recording.
func judged(l *Lesson, r *Recording) Result {
	result, _ := Judge(context.Background(), l, r) // whose only error is that of the context
	return result
}

// Docs writes all lessons as a page in Markdown, with the verdicts of a recording, which may be nil.
func Docs(r *Recording) string {
	var b strings.Builder
	b.WriteString("# Lessons\n\nThis page is generated from package `learn`: `go test ./learn -run TestDocs -update` writes it again.\n\n" +
		"`infer learn` lists claims about CPUs, GPUs and profilers as lecture notes have them. `infer learn 6` tests one on your machine, in seconds, and explains what is found;\n" +
		"`--source` shows the CUDA C++ of its experiment. A verdict is computed from the data of an experiment each time: *shown*, *refuted*, or *cannot be shown here*.\n\n")
	if r != nil {
		fmt.Fprintf(&b, "The verdicts and figures here are of a recording of %s: %s", r.Created.Format("2006-01-02"), r.Machine.name(OnCPU))
		if r.Machine.GPU != "" {
			fmt.Fprintf(&b, "; %s, driver for CUDA %s", r.Machine.GPU, r.Machine.Driver)
		}
		b.WriteString(".\nA value with an interval is the median of repeated measurements; the interval is that of the median. One without was counted or computed.\n\n")
	}
	b.WriteString("| lesson | claim | verdict |\n|---|---|---|\n")
	for _, l := range All() {
		fmt.Fprintf(&b, "| [%d](#lesson-%d) | %s | %s |\n", l.Number, l.Number, escaped(l.Claim), judged(l, r).Verdict)
	}
	for _, l := range All() {
		result := judged(l, r)
		fmt.Fprintf(&b, "\n## Lesson %d\n\n> %s\n\n", l.Number, escaped(l.Claim))
		for _, p := range result.Parts {
			fmt.Fprintf(&b, "**%s: %s.**\n\n", p.Name(), p.Verdict)
			if len(p.Figures) > 0 {
				b.WriteString("| figure | value | 95 % interval |\n|---|--:|---|\n")
				for _, f := range p.Figures {
					fmt.Fprintf(&b, "| %s | %s | %s |\n", escaped(f.Name), f.Short(), f.Interval())
				}
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "%s\n\n", escaped(p.Text))
			if len(p.Lines) > 0 {
				fmt.Fprintf(&b, "```\n%s\n```\n\n", strings.Join(p.Lines, "\n"))
			}
		}
		fmt.Fprintf(&b, "%s\n\nGo on: `%s`\n", escaped(strings.Join(strings.Fields(l.Why), " ")), l.GoOn)
	}
	return b.String()
}

// escaped writes a text so that Markdown shows it as it is.
func escaped(text string) string {
	return strings.NewReplacer("*", `\*`, "<", "&lt;", "|", `\|`, "_", `\_`).Replace(text)
}

//go:build cgo

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/glossary"
	"gpt2scope/traces/judge"
)

func newExplain() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Say what a kernel, an API call, a metric, a column or a word is",
		Long: `explain says what a name in a recording, a profiler or a table means: a kernel, a call of CUDA, an operator of
PyTorch, a metric of ncu or nvprof, a column, an option of nsys, a word. The name of a kernel may be given
as a recording has it. Without a name it lists all.`,
		Example: `  infer explain fmha_cutlassF_f32_aligned_64x64_rf_sm80
  infer explain waves
  infer explain dram__throughput
  infer explain out of memory`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			all, name := explanations(), strings.Join(args, " ")
			found := all
			if name != "" {
				found = glossary.Find(all, name)
			}
			near := glossary.Near(all, name)
			if len(found) == 0 && len(near) == 1 && strings.Contains(strings.ToLower(near[0]), strings.ToLower(name)) {
				found = glossary.Find(all, near[0])
			} else if len(found) == 0 {
				hint := "'infer explain' lists what it knows"
				if near != nil {
					hint = "near it: " + strings.Join(near, ", ")
				}
				return fmt.Errorf("nothing is known of %s; %s", cli.ShellQuote(name), hint)
			}
			return cli.Print(c, asJSON, found, func(w io.Writer) {
				if name == "" {
					writeNames(w, all)
					return
				}
				for _, e := range found {
					writeExplanation(w, e, name)
				}
			})
		},
	}
	cli.AddJSON(c, &asJSON)
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		option := "openmp-tracking"
		if unknown := new(pflag.NotExistError); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
			option = unknown.GetSpecifiedName()
		}
		return cli.Usagef("%w; an option is explained without its dashes: infer explain %s", err, option)
	})
	return c
}

// explanations are those of the glossary, of the indicators of 'infer trace kpi' and of the rules of 'infer trace
// advise'.
func explanations() []glossary.Entry {
	all := glossary.All()
	for _, d := range judge.Definitions() {
		all = append(all, glossary.Entry{Kind: "indicator", Names: []string{d.Name}, Says: "is: " + d.Definition, From: "infer trace kpi"})
	}
	for i, r := range judge.Rules {
		if !slices.ContainsFunc(judge.Rules[:i], func(other judge.Rule) bool { return other.ID == r.ID }) {
			all = append(all, glossary.Entry{Kind: "finding", Names: []string{r.ID}, Says: "says: " + r.Says, From: "infer trace advise"})
		}
	}
	return all
}

// writeExplanation writes an entry with the name by which it was found.
func writeExplanation(w io.Writer, e glossary.Entry, name string) {
	title := e.Names[0]
	for _, n := range e.Names {
		if strings.EqualFold(n, name) || e.Kind == glossary.Kernel && strings.Contains(name, n) {
			title = n
			break
		}
	}
	fmt.Fprint(w, cli.Wrapped("", fmt.Sprintf("%s (%s) %s.", title, e.Kind, e.Says)))
	also := slices.DeleteFunc(slices.Clone(e.Names), func(n string) bool { return n == title || e.Kind == glossary.Kernel })
	for _, line := range [][2]string{{"also", strings.Join(also, ", ")}, {"see", e.From}} {
		if line[1] != "" {
			fmt.Fprint(w, cli.Wrapped("  ", line[0]+": "+line[1]))
		}
	}
}

func writeNames(w io.Writer, all []glossary.Entry) {
	for len(all) > 0 {
		kind, names := all[0].Kind, []string(nil)
		for len(all) > 0 && all[0].Kind == kind {
			names, all = append(names, all[0].Names...), all[1:]
		}
		fmt.Fprintf(w, "%s\n%s", kind, cli.Wrapped("  ", strings.Join(names, ", ")))
	}
	fmt.Fprint(w, "\n'infer explain NAME' says what one is.\n")
}

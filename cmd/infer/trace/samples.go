package trace

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/traces/samples"
)

func newTraceSamples() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "samples",
		Short: "List the recordings that are in the program, each with a command that shows what it is good for",
		Long: `samples lists recordings of an NVIDIA H200 that are in the program. Where a command reads a recording,
sample:NAME stands for one. --json prints them as a list.`,
		Example:     `  infer trace samples`,
		Annotations: map[string]string{cli.UsesKey: ""},
		RunE: func(c *cobra.Command, _ []string) error {
			return cli.Print(c, asJSON, samples.All(), func(w io.Writer) {
				table.Print(w, sampleList, samples.All())
				fmt.Fprintln(w, "\nin place of a file: 'infer trace advise sample:bad'")
			})
		},
	}
	cli.AddJSON(c, &asJSON)
	return c
}

var sampleList = []table.Column[samples.Sample]{
	table.Text("", "recording", func(s *samples.Sample) string { return samples.Prefix + s.Name }),
	{Title: "what it is of", Left: true, Cell: func(s *samples.Sample) table.Cell { return table.String(s.Says) }},
	{Title: "infer trace ...", Left: true, Cell: func(s *samples.Sample) table.Cell { return table.String(s.Try) }},
}

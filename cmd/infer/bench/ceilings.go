package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
)

func newBenchCeilings(m *cli.ModelFlags) *cobra.Command {
	var again, asJSON bool
	c := &cobra.Command{
		Use:   "ceilings",
		Short: "Measure what the device can do at most",
		Long: `ceilings measures what floors are computed from: the bandwidth of memory and caches, the arithmetic rate of
each type, the cost of a barrier of all threads, and on a GPU that of a launch and of a hop, the time from
when all SMs have written their parts of a vector until all have read it. Later runs take the result from
the user's cache folder, as long as device, versions, threads and kernels are the same.

A value is the best median of several rounds, which go on until a second one comes within 5% of the best; if
none does, the result is shown with its uncertainty, and kept until a surer one is measured. The bandwidth of
a cache holds for data of at most the given size; a copy counts the bytes that it reads and those that it writes.`,
		Example: `  infer bench ceilings
  infer bench ceilings --device cpu --threads 1 --measure`,
		Annotations: map[string]string{cli.UsesKey: "device threads quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			return runCeilings(c, m, again, asJSON)
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.BoolVar(&again, "measure", false, "measure again even if a result is stored")
	})
	cli.AddJSON(c, &asJSON)
	return c
}

func runCeilings(c *cobra.Command, m *cli.ModelFlags, again, asJSON bool) error {
	backend, err := m.Backend()
	if err != nil {
		return err
	}
	defer backend.Close()
	set, stored, err := cli.CeilingsOf(c.Context(), backend, m, again)
	if err != nil {
		return err
	}
	return cli.Print(c, asJSON, CeilingsObject{stored, set}, func(w io.Writer) { WriteCeilings(w, set, stored) })
}

// WriteCeilings writes a set as a table.
func WriteCeilings(w io.Writer, s ceilings.Set, stored bool) {
	fmt.Fprintln(w, device(&s))
	if stored {
		fmt.Fprintf(w, "measured %s; --measure measures again\n", s.Time.Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	table.Lines(w, table.Left, "what\tdata\tvalue\tunit\trounds\tby", s.Values, func(v ceilings.Value) string {
		data := ""
		switch {
		case v.Size > 0 && v.Unit == ceilings.Micro:
			data = humanize.Size(v.Size)
		case v.Size > 0:
			data = "up to " + humanize.Size(v.Size)
		case v.Where != "" && v.Unit == ceilings.GBs:
			data = "any"
		}
		rounds := ""
		if n := len(v.Rounds); n > 0 {
			low, high := v.Spread()
			rounds = fmt.Sprintf("%d: %s - %s", n, cli.Digits(low), cli.Digits(high))
		}
		return strings.Join([]string{v.What(), data, cli.Digits(v.Value), v.Unit, rounds, v.How}, "\t")
	})
}

// measureDevice returns what a backend's device can do, as [cli.CeilingsOf]; nil if it has no ceilings.
func measureDevice(ctx context.Context, backend gpt2.Backend, m *cli.ModelFlags) (*ceilings.Set, error) {
	set, _, err := cli.CeilingsOf(ctx, backend, m, false)
	if errors.Is(err, cli.ErrNoCeilings) {
		return nil, nil
	}
	return &set, err
}

// rooflineText writes [ceilings.Roofline]; "" if there is none.
func rooflineText(floor, time float64) string {
	if percent, ok := ceilings.Roofline(floor, time); ok {
		return fmt.Sprintf("%.0f", percent)
	}
	return ""
}

// RooflineSays writes [ceilings.Roofline] of a pass, or why there is none.
func RooflineSays(floor, time float64) string {
	switch text := rooflineText(floor, time); {
	case text != "":
		return text + "% of the roofline"
	case floor > time:
		return "no roofline %: the pass is faster than its floor, so a ceiling was measured too low; " +
			"'infer bench ceilings --measure' measures the ceilings again"
	}
	return "no roofline %: a ceiling is not known"
}

// device names the device of a set, and says if its ceilings are in doubt.
func device(s *ceilings.Set) string {
	if s.Disturbed == "" {
		return s.Key
	}
	return fmt.Sprintf("%s\nthe ceilings may be too low by %.0f%%: %s", s.Key, 100*s.Uncertainty, s.Disturbed)
}

type CeilingsObject struct {
	Stored bool         `json:"stored"` // measured by an earlier command
	Set    ceilings.Set `json:"set"`
}

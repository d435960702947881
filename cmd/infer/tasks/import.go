package tasks

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/tasks"
)

// newTasksImport makes "infer tasks import".
func newTasksImport() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "import DIR FILE...",
		Short: "Lay what Nsight Systems and Compute say beside samples",
		Long: `import reads the CSV of 'nsys stats' (the reports cuda_gpu_kern_sum, cuda_api_sum and
nvtx_sum) and of 'ncu --csv', and lays what they say of each kernel beside the samples of
'infer tasks bench' in DIR: launches and times, occupancy, throughput, hit rates. These explain
a time. They exist only after a run, so that no prediction uses them. The files come from

  nsys profile -o run infer tasks bench -o out --cold 0
  nsys stats --format csv --report cuda_gpu_kern_sum,cuda_api_sum,nvtx_sum run.nsys-rep`,
		Example:     "  infer tasks import out nsys.csv ncu.csv",
		Annotations: map[string]string{cli.UsesKey: ""},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.Usagef("give the directory of the samples and the files of the tools: %s DIR FILE...", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return importTools(args[0], args[1:], asJSON, c.OutOrStdout())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "print one JSON object")
	})
	return c
}

func importTools(dir string, files []string, asJSON bool, stdout io.Writer) error {
	samples, err := tasks.ReadFiles(dir)
	if err != nil {
		return err
	}
	e := tasks.Explanation{Kernels: []tasks.Kernel{}, Calls: []tasks.Total{}, Ranges: []tasks.Total{}}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, humanize.Cause(err))
		}
		err = e.Add(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	e.Beside(samples)
	if asJSON {
		return cli.WriteJSON(stdout, e)
	}
	var b bytes.Buffer
	value := func(v *float64) string {
		if v == nil {
			return ""
		}
		return cli.Digits(*v)
	}
	cli.PrintText(&b, cli.ToLeft, "kernel\ttask\tway\tlaunches\tus\tsamples us\toccupancy %\tmemory %\tcompute %\tL1 hit %\tL2 hit %", e.Kernels, func(k tasks.Kernel) string {
		name := k.Name
		if len(name) > 40 {
			name = name[:37] + "..."
		}
		return strings.Join([]string{name, k.Task, k.Variant, fmt.Sprint(k.Launches), value(k.MedianUs), value(k.SampleUs), value(k.Occupancy), value(k.Memory), value(k.Compute), value(k.L1HitRate), value(k.L2HitRate)}, "\t")
	})
	for _, part := range []struct {
		title string
		rows  []tasks.Total
	}{{"CUDA call", e.Calls}, {"range", e.Ranges}} {
		if len(part.rows) == 0 {
			continue
		}
		fmt.Fprintln(&b)
		cli.PrintText(&b, cli.ToLeft, part.title+"\tcount\ttotal us\tmedian us", part.rows[:min(10, len(part.rows))], func(t tasks.Total) string {
			return fmt.Sprintf("%s\t%d\t%s\t%s", t.Name, t.Count, cli.Digits(t.TotalUs), cli.Digits(t.MedianUs))
		})
	}
	return cli.WriteOutput(stdout, b.Bytes())
}

package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/cli"
	cudaexec "gpt2scope/cuda/exec"
	"gpt2scope/cuda/workbench"
	"gpt2scope/gpt2"
	"gpt2scope/internal/table"
)

func newBenchKernel(m *cli.ModelFlags) *cobra.Command {
	var b benchFlags
	c := &cobra.Command{
		Use:   "kernel STAGE",
		Short: "Check and time every kernel of a stage on a GPU",
		Long: `kernel runs one stage by itself, on random numbers, with every kernel that the CUDA library has for it. It
compares the output with float64 arithmetic, and prints the time of one launch among many in a graph, the
GB/s and TFLOP/s of the least bytes and FLOPs, and the share of the floor. Launches take turns over several
copies of their data. STAGE is a name within its layer, such as attn.sdpa, mlp.gelu, ln_1 or lm_head.`,
		Example: `  infer bench kernel attn.sdpa -m random:gpt2 --past 512
  infer bench kernel mlp.c_fc -m random:gpt2-xl --phase prefill --prompt-len 1024
  infer bench kernel sample -m random:gpt2 --dtype f32`,
		Args: cli.Words(1, 1, "one stage", "attn.sdpa"),
		RunE: func(c *cobra.Command, args []string) error {
			return b.runKernel(c, m, args[0])
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		b.register(f)
		f.Var(cli.Int(&b.repeat, 20, cli.Repeats), "repeat", "replay each graph `N` times")
	})
	cli.AddJSON(c, &b.json)
	return c
}

func (b *benchFlags) runKernel(c *cobra.Command, m *cli.ModelFlags, name string) (err error) {
	if b.batch, err = b.batches.One("batch"); err != nil {
		return err
	}
	stage := slices.Index(gpt2.StageNames(), name)
	if stage < 0 {
		return cli.Usagef("there is no stage %s; stages are %s", cli.ShellQuote(name), strings.Join(gpt2.StageNames(), ", "))
	}
	if m.KV == "q8" {
		return cli.Usagef("--kv q8: kernels are measured with keys and values in the type of activations; leave it out")
	}
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Close()
	backend, ok := o.Backend.(*cudaexec.Backend)
	if !ok {
		return errors.New("the device is the CPU, and these are kernels of a GPU; use --device cuda, " +
			"which says what is missing")
	}
	phase, past, err := b.pass(c.Flags(), o.Options.Context)
	if err != nil {
		return err
	}
	set, err := measureDevice(c.Context(), backend, m)
	if err != nil {
		return err
	}
	report, err := workbench.Run(c.Context(), backend.Library(), backend.Device(),
		workbench.Options{Config: o.Model.Config, Stage: gpt2.Stage(stage),
			B: phase.Batch, T: phase.Tokens, Past: past, Sizes: backend.Sizes(o.Model), Repeat: b.repeat, Ceilings: *set})
	if err != nil {
		return err
	}
	out := KernelJSON{Stage: name, Model: o.Model.Name, Batch: phase.Batch, Tokens: phase.Tokens, Past: past,
		DType: backend.Describe().WeightType, Device: set, Copies: report.Copies}
	var wrong error
	for _, r := range report.Kernels {
		if r.Note == "" && !r.Right && wrong == nil {
			wrong = fmt.Errorf("%s with variant %s is off by %.1e of the largest value; %.0e is allowed", name, r.Name(),
				r.Error, report.Tolerance)
		}
		roofline, _ := ceilings.Roofline(float64(r.Floor), float64(r.Median))
		out.Kernels = append(out.Kernels, KernelRow{r.Variant, r.Parameters, r.Note, cli.Number(r.Error), r.Right,
			micro(r.Floor), micro(r.Median), micro(r.P10), micro(r.P90), r.GBS, r.TFLOPS, r.Share(), roofline})
	}
	return cmp.Or(cli.Print(c, b.json, out, func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s, B=%d T=%d, %s in the cache, %s\n%s\ncopies of the data, used in turn: %d\n\n",
			name, out.Model, out.Batch, out.Tokens, cli.Count(past, "token"), out.DType, device(set), out.Copies)
		printKernels(w, out.Kernels)
	}), wrong)
}

func micro(d time.Duration) float64 { return float64(d) / 1e3 }

func printKernels(w io.Writer, rows []KernelRow) {
	const heading = "variant\tparameters\terror\tfloor us\tmedian us\tp10 - p90\tGB/s\tTFLOP/s\troofline %"
	table.Lines(w, table.Left, heading, rows, func(r KernelRow) string {
		if r.Note != "" {
			return fmt.Sprintf("%s\t%s\t%s", r.Variant, r.Parameters, r.Note)
		}
		verdict := ""
		if !r.Right {
			verdict = " WRONG"
		}
		return fmt.Sprintf("%s\t%s\t%.1e%s\t%.2f\t%.2f\t%.2f - %.2f\t%.0f\t%.2f\t%s", r.Variant, r.Parameters, r.Error,
			verdict,
			r.Floor, r.Median, r.P10, r.P90, r.GBS, r.TFLOPS, rooflineText(r.Floor, r.Median))
	})
}

// KernelRow is a workbench.Result as --json prints it.
type KernelRow struct {
	Variant    string     `json:"variant"`
	Parameters string     `json:"parameters,omitempty"` // such as block sizes
	Note       string     `json:"note,omitempty"`       // why it did not run
	Error      cli.Number `json:"error"`                // max |difference| / max |value|
	Right      bool       `json:"right"`                // the error is within the tolerance
	Floor      float64    `json:"floor_us"`
	Median     float64    `json:"median_us"`
	P10        float64    `json:"p10_us"`
	P90        float64    `json:"p90_us"`
	GBS        float64    `json:"gb_per_s"`    // of the least bytes and FLOPs
	TFLOPS     float64    `json:"tflop_per_s"` // of the least bytes and FLOPs
	Share      float64    `json:"share_of_floor"`
	Roofline   float64    `json:"roofline_percent,omitempty"` // none if it is faster than its floor
}

type KernelJSON struct {
	Stage   string        `json:"stage"`
	Model   string        `json:"model"`
	Batch   int           `json:"batch"`
	Tokens  int           `json:"tokens"`
	Past    int           `json:"past"`
	DType   string        `json:"dtype"`
	Device  *ceilings.Set `json:"device"`
	Copies  int           `json:"copies"` // of the data, used in turn
	Kernels []KernelRow   `json:"kernels"`
}

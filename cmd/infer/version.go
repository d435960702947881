package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cuda"
)

// versionJSON is what "infer version --json" prints.
type versionJSON struct {
	cli.BuildInfo
	CUDA      string `json:"cuda_library,omitempty"`      // the CUDA version that the library was built with
	CUDALacks string `json:"cuda_unavailable,omitempty"`  // why the library cannot be used
	CUDAABI   int    `json:"cuda_library_abi,omitempty"`  // of the interface between program and library
	CUDAPath  string `json:"cuda_library_path,omitempty"` // of the library in use
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is: commit, date, Go, and the CUDA library",
		Long: `version shows the commit that the program was built from, when it was built and by which
Go, and the CUDA version of the library beside it, or what that lacks. The first line is also
in recordings and results.`,
		Example: `  infer version
  infer version --json`,
		Annotations: map[string]string{cli.UsesKey: "quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionJSON{BuildInfo: cli.ThisBuild(), CUDAABI: int(cuda.ABIVersion)}
			lib, err := cuda.Open()
			var missing *cuda.UnavailableError
			switch {
			case err == nil:
				_, runtime, _ := lib.Versions()
				v.CUDA, v.CUDAPath = cudaVersion(runtime), lib.Path()
			case errors.As(err, &missing) && missing.Runtime > 0:
				v.CUDA, v.CUDALacks = cudaVersion(missing.Runtime), err.Error()
			default:
				v.CUDALacks = err.Error()
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), v)
			}
			var b bytes.Buffer
			fmt.Fprintf(&b, "infer %s\n", cli.Version())
			for _, line := range [][2]string{{"commit", v.Commit}, {"commit time", v.CommitTime}, {"built", v.Built}, {"CUDA library", v.CUDA}, {"library file", v.CUDAPath}, {"no CUDA", v.CUDALacks}} {
				if line[1] != "" {
					fmt.Fprintf(&b, "%-13s %s\n", line[0], line[1])
				}
			}
			return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "print one JSON object")
	})
	return c
}

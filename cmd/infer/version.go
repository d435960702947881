package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cuda"
)

// What 'make build' passes to the linker: the commit, which ends in -dirty if files differed from
// it, and the time, as in RFC 3339. 'go build' records the commit itself.
var commit, built string

// buildInfo says which build of the program this is.
type buildInfo struct {
	Version    string `json:"version"`               // of the module
	Commit     string `json:"commit,omitempty"`      // in full
	Modified   bool   `json:"modified"`              // files differed from the commit
	CommitTime string `json:"commit_time,omitempty"` // RFC 3339
	Built      string `json:"built,omitempty"`       // RFC 3339
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func thisBuild() buildInfo {
	b := buildInfo{Version: "(devel)", Built: built, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(info.Main.Version, b.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.CommitTime = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if commit != "" {
		name, dirty := bytes.CutSuffix([]byte(commit), []byte("-dirty"))
		if b.Commit != string(name) {
			b.CommitTime = ""
		}
		b.Commit, b.Modified = string(name), dirty
	}
	return b
}

// version names this build in one line, for recordings and results. It does not have the time of
// the build: two builds of a commit give the same results.
func version() string {
	b := thisBuild()
	v := b.Version
	if b.Commit != "" {
		v = "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			v += " modified"
		}
		if b.Version != "(devel)" && !strings.HasPrefix(b.Version, "v0.0.0-") { // which names the commit too
			v = b.Version + " " + v
		}
	}
	return fmt.Sprintf("%s %s %s", v, b.Go, b.Platform)
}

// versionJSON is what "infer version --json" prints.
type versionJSON struct {
	buildInfo
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
		Annotations: map[string]string{usesKey: "quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionJSON{buildInfo: thisBuild(), CUDAABI: int(cuda.ABIVersion)}
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
				return writeJSON(c.OutOrStdout(), v)
			}
			var b bytes.Buffer
			fmt.Fprintf(&b, "infer %s\n", version())
			for _, line := range [][2]string{{"commit", v.Commit}, {"commit time", v.CommitTime}, {"built", v.Built}, {"CUDA library", v.CUDA}, {"library file", v.CUDAPath}, {"no CUDA", v.CUDALacks}} {
				if line[1] != "" {
					fmt.Fprintf(&b, "%-13s %s\n", line[0], line[1])
				}
			}
			return writeOutput(c.OutOrStdout(), b.Bytes())
		},
	}
	addFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "print one JSON object")
	})
	return c
}

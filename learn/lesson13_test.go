package learn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tools puts programs named ncu and nsys on the path, which print what the real ones would.
func tools(t *testing.T, metrics, kernSum string) {
	t.Helper()
	dir := t.TempDir()
	more := strings.Repeat("echo \"sm__filler_$i Counter\"; i=$((i+1))\n", 1)
	ncu := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'NVIDIA Nsight Compute'; echo 'Version 2025.3'; exit; }\n" +
		"i=0; while [ $i -lt 120 ]; do " + strings.ReplaceAll(more, "\n", "; ") + "done\n" + "cat <<END\n" + metrics + "\nEND\n"
	nsys := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'NVIDIA Nsight Systems version 2025.3'; exit; }\n" +
		"case $3 in\ncuda_gpu_kern_sum) cat <<END\n" + kernSum + "\nEND\n;;\ncuda_gpu_kern_gb_sum) printf 'cuda_gpu_kern_gb_sum[:base] -- Summary\\n    Total Time : x\\n    GridXYZ : Grid dimensions\\n';;\n*) printf 'cuda_gpu_trace -- Trace\\n    Duration : x\\n    GrdX, GrdY, GrdZ : Grid values\\n';;\nesac\n"
	for name, text := range map[string]string{"ncu": ncu, "nsys": nsys} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

const (
	newMetrics  = "sm__warps_active Counter warp # of warps\nsm__inst_executed Counter inst # of instructions\nsmsp__cycles_active Counter cycle # of cycles"
	oldMetrics  = "sm_efficiency x\nachieved_occupancy x\nipc x"
	withoutGrid = "cuda_gpu_kern_sum -- CUDA GPU Kernel Summary\n    Total Time : Total time\n    Name : of a kernel, without grid : or block"
)

func TestNames(t *testing.T) {
	asked := func(metrics, kernSum string) Data {
		tools(t, metrics, kernSum)
		d, err := namesHere(t.Context(), quick(t))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	today := asked(newMetrics, withoutGrid)
	verdicts(t, judgeNames, given{
		"today":                    {today, Refuted},
		"as claimed":               {asked(oldMetrics, withoutGrid+"\n    GridXYZ : Grid dimensions"), Shown},
		"old names without grid":   {asked(oldMetrics, withoutGrid), Refuted},
		"a grid without old names": {asked(newMetrics, "cuda_gpu_kern_sum -- Summary\n Total Time : x\n  GridXYZ : y"), Refuted},
		"no tool tells":            {Data{{Case: "missing", Quantity: "tool", Text: "ncu is not installed"}}, Unknown},
	})
	f := judgeNames(today)
	if !strings.Contains(f.Text, "ncu 2025.3 lists 0 of the 3 metrics of the claim, and 3 of the 7 names of today below.") || len(f.Lines) != 1+len(renamed) ||
		!strings.Contains(f.Text, "that list the grid: cuda_gpu_kern_gb_sum, cuda_gpu_trace; that do not: cuda_gpu_kern_sum.") {
		t.Error(f.Text)
	}
}

// Help of all reports in one text is cut into reports.
func TestHelpOf(t *testing.T) {
	text := "Reports:\n  a[:base] -- A\n\n    Time : x\n  b -- B\n    Time : y\n    GridXYZ : z\n"
	if a, b, c := helpOf(text, "a"), helpOf(text, "b"), helpOf(text, "c"); !strings.HasSuffix(a, "Time : x") || !gridColumn.MatchString(b) || gridColumn.MatchString(a) || c != "" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}

// One tool is enough for a verdict; the other is named.
func TestNamesWithOneTool(t *testing.T) {
	tools(t, newMetrics, "no such report")
	d, err := namesHere(t.Context(), quick(t))
	if err != nil {
		t.Fatal(err)
	}
	if f := judgeNames(d); f.Verdict != Refuted {
		t.Errorf("%s: %s", f.Verdict, f.Text)
	}
	path, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	if err := os.Remove(filepath.Join(path, "nsys")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":/bin:/usr/bin")
	if d, err = namesHere(t.Context(), quick(t)); err != nil {
		t.Fatal(err)
	}
	if f := judgeNames(d); f.Verdict != Refuted || !strings.Contains(f.Text, "Not asked: nsys is not installed.") {
		t.Errorf("%s: %s", f.Verdict, f.Text)
	}
}

// Without the tools, the lesson says which are missing.
func TestNamesWithoutTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := namesHere(t.Context(), quick(t)); err == nil || !strings.Contains(err.Error(), "ncu is not installed, nsys is not installed") {
		t.Error(err)
	}
}

package auto

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/cuda"
)

// Driver is what files tell of NVIDIA's driver.
type Driver struct {
	Present bool   // it is loaded, and its GPUs are not hidden by CUDA_VISIBLE_DEVICES
	GPU     string // the name of the GPUs; "" if it is not known, or if they differ
}

// FindDriver looks for the driver's files below root, "/" but for tests. visible is the value of CUDA_VISIBLE_DEVICES,
// and whether it is set. Nothing of CUDA is opened.
func FindDriver(root, visible string, isSet bool) (d Driver) {
	if isSet && (visible == "" || visible == "-1") || !cuda.HasDriver(root) {
		return d
	}
	d.Present = true
	var names []string
	files, _ := filepath.Glob(filepath.Join(root, "proc/driver/nvidia/gpus/*/information"))
	for _, path := range files {
		data, _ := os.ReadFile(path) // without it the name is not known
		name := ""
		for line := range strings.Lines(string(data)) {
			if model, ok := strings.CutPrefix(line, "Model:"); ok {
				name = strings.TrimSpace(model)
			}
		}
		names = append(names, name)
	}
	if names = slices.Compact(names); len(names) == 1 {
		d.GPU = names[0]
	}
	return d
}

// Waited returns which share of the time that the threads of this process wanted to run, since they began, they waited
// for a processor: 0 on an idle machine, 0.5 where each shares one. It is 0 where the system does not tell.
func Waited() float64 { return waited("/proc/self/task") }

func waited(tasks string) float64 {
	var ran, late float64 // ns
	threads, _ := filepath.Glob(filepath.Join(tasks, "*"))
	for _, thread := range threads {
		data, _ := os.ReadFile(filepath.Join(thread, "schedstat")) // nothing if the thread ended
		var on, off float64
		if _, err := fmt.Sscan(string(data), &on, &off); err == nil && on >= 0 && off >= 0 {
			ran, late = ran+on, late+off
		}
	}
	return late / max(1, ran+late)
}

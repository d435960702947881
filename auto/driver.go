package auto

import (
	"os"
	"path/filepath"
	"strings"
)

// Driver is what files tell of NVIDIA's driver.
type Driver struct {
	Present bool   // it is loaded, and its GPUs are not hidden by CUDA_VISIBLE_DEVICES
	GPU     string // the name of the GPUs; "" if it is not known, or if they differ
}

// FindDriver looks for the driver's files below root, "/" but for tests. visible is the value of
// CUDA_VISIBLE_DEVICES, and whether it is set. Nothing of CUDA is opened.
func FindDriver(root, visible string, isSet bool) (d Driver) {
	if isSet && (visible == "" || visible == "-1") {
		return d
	}
	for _, path := range []string{"dev/nvidiactl", "proc/driver/nvidia/version", "dev/dxg"} {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			d.Present = true
		}
	}
	if !d.Present {
		return d
	}
	files, _ := filepath.Glob(filepath.Join(root, "proc/driver/nvidia/gpus/*/information"))
	for i, path := range files {
		name := model(path)
		if i > 0 && name != d.GPU {
			d.GPU = ""
			break
		}
		d.GPU = name
	}
	return d
}

// model returns the name in a file of the driver about a GPU, "" if it has none.
func model(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "Model:"); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

package auto

import (
	"fmt"
	"os"
	"path/filepath"
)

// Waited returns which share of the time that the threads of this process wanted to run, since they began, they waited
// for a processor: 0 on an idle machine, 0.5 where each shares one. It is 0 where the system does not tell.
func Waited() float64 { return waited("/proc/self/task") }

func waited(tasks string) float64 {
	var ran, late float64 // ns
	files, _ := filepath.Glob(filepath.Join(tasks, "*", "schedstat"))
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread ended
		}
		var on, off float64
		if _, err := fmt.Sscan(string(data), &on, &off); err == nil && on >= 0 && off >= 0 {
			ran, late = ran+on, late+off
		}
	}
	if !(ran+late > 0) {
		return 0
	}
	return late / (ran + late)
}

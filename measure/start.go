package measure

import (
	"fmt"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cuda"
	"gpt2scope/cuda/nvml"
)

// Starts measures what the first use of a GPU and of NVML costs this process, which must have used neither. What could
// not be measured is left out; err says why.
func Starts(index int) (values []ceilings.Value, err error) {
	us, err := cuda.MeasureStart(index)
	if err != nil {
		return nil, fmt.Errorf("the start of cuda: %w", err)
	}
	began := time.Now()
	n, err := nvml.Open()
	if err != nil {
		err = fmt.Errorf("the start of nvml: %w", err)
	} else {
		us[ceilings.NVML] = float64(max(1, time.Since(began))) / 1e3
		n.Close()
	}
	for _, c := range []struct{ name, how string }{
		{ceilings.CUDADriver, "library opened and device found, the first thing that a process did"},
		{ceilings.CUBLASLt, "opened after that"},
		{ceilings.CUDAContext, "the first stream and the first memory after that"},
		{ceilings.NVML, "opened after that"},
	} {
		if v := us[c.name]; v > 0 {
			values = append(values, ceilings.Value{Name: c.name, Unit: ceilings.Micro, Value: v, P10: v, P90: v, How: c.how})
		}
	}
	return values, err
}

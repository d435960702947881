package tasks

import (
	"fmt"
	"strconv"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// Machine is the devices that tasks run on.
type Machine struct {
	Name string // for people
	Team *cpu.Team
	CPU  Device
	GPUs []*GPUDevice // by CUDA's index; nil where one is not used
}

// Device is what samples say of a device.
type Device struct {
	Key      string // names it, with versions and threads: [ceilings.Set.Key]
	Ceilings ceilings.Set
}

// device returns the device that a case runs on.
func (m *Machine) device(name string) Device {
	if g := m.gpu(name); g != nil {
		return g.About
	}
	return m.CPU
}

// gpu returns the GPU "cuda:1", nil if it is not open.
func (m *Machine) gpu(name string) *GPUDevice {
	_, index, _ := strings.Cut(name, ":")
	if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(m.GPUs) {
		return m.GPUs[i]
	}
	return nil
}

// Devices lists what cases may run on: "cpu", "cuda:0".
func (m *Machine) Devices() []string {
	var out []string
	if m.Team != nil {
		out = append(out, CPU)
	}
	for i, g := range m.GPUs {
		if g != nil {
			out = append(out, fmt.Sprintf("%s:%d", GPU, i))
		}
	}
	return out
}

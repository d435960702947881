package tasks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// Machine is the devices that tasks run on.
type Machine struct {
	Name  string // for people
	Team  *cpu.Team
	CPU   Device
	GPUs  []*GPUDevice // by CUDA's index; nil where one is not used
	Model *gpt2.Model  // of the tasks that run one; nil for none

	reference gpt2.Backend
	backends  map[backendKey]gpt2.Backend
}

// backendKey names a backend: mode is "" or, on a GPU, "eager".
type backendKey struct{ device, dtype, mode string }

// Device is what samples say of a device.
type Device struct {
	Key      string // names it, with versions and threads: [ceilings.Set.Key]
	Ceilings ceilings.Set
}

// Options say what a machine is to have.
type Options struct {
	Name    string
	CPU     bool
	Threads int   // of the CPU; 0 is one for each physical core
	GPUs    []int // by CUDA's index
	Model   *gpt2.Model
}

// Open opens devices. Their ceilings are not known yet: see [Machine.SetCeilings].
func Open(o Options) (m *Machine, err error) {
	m = &Machine{Name: o.Name, Model: o.Model, reference: cpu.NewReference(), backends: map[backendKey]gpt2.Backend{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	types := map[string]weights.DType{Float32: weights.F32, BFloat16: weights.BF16}
	for dtype, d := range types { // inputs are checked with the CPU's results also where only a GPU is measured
		b, err := cpu.New(cpu.Options{Threads: o.Threads, DType: d})
		if err != nil {
			return m, err
		}
		m.backends[backendKey{CPU, dtype, ""}] = b
		if dtype == Float32 {
			m.CPU.Key, _ = b.CeilingsKey()
			if o.CPU {
				m.Team = b.Team()
			}
		}
	}
	if len(o.GPUs) == 0 {
		return m, nil
	}
	lib, err := cuda.Open()
	if err != nil {
		return m, err
	}
	for _, i := range o.GPUs {
		dev, err := lib.Device(i)
		if err != nil {
			return m, err
		}
		g, err := OpenGPU(dev)
		if err != nil {
			return m, err
		}
		for len(m.GPUs) <= i {
			m.GPUs = append(m.GPUs, nil)
		}
		m.GPUs[i] = g
		if g.About.Key, err = dev.CeilingsKey(); err != nil {
			return m, err
		}
		name := fmt.Sprintf("%s:%d", GPU, i)
		for dtype, d := range types {
			for mode, is := range map[string]exec.Mode{"": exec.Auto, "eager": exec.Eager} {
				b, err := exec.NewOn(lib, exec.Options{Device: i, DType: d, Mode: is})
				if err != nil {
					return m, err
				}
				m.backends[backendKey{name, dtype, mode}] = b
			}
		}
	}
	return m, nil
}

// Close frees what the machine's devices hold.
func (m *Machine) Close() error {
	var errs []error
	for _, g := range m.GPUs {
		if g != nil {
			errs = append(errs, g.Close())
		}
	}
	for _, b := range m.backends {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// Measurers returns what measures the ceilings of each device, by its name.
func (m *Machine) Measurers() map[string]gpt2.Backend {
	out := map[string]gpt2.Backend{}
	for _, name := range m.Devices() {
		out[name] = m.backends[backendKey{name, Float32, ""}]
	}
	return out
}

// SetCeilings says what a device can do, from which floors are computed.
func (m *Machine) SetCeilings(device string, set ceilings.Set) {
	if g := m.gpu(device); g != nil {
		g.About.Ceilings = set
	} else {
		m.CPU.Ceilings = set
	}
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

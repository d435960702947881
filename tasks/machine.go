package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/cuda/exec"
	"gpt2scope/cuda/nvml"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/weights"
)

// Machine is the devices that tasks run on.
type Machine struct {
	Name  string // for people
	Team  *cpu.Team
	CPU   Device
	GPUs  []*GPUDevice
	Model *gpt2.Model // of the tasks that run one; nil for none

	nvml     *nvml.NVML // nil if it cannot be opened: then samples have no clocks
	backends map[backendKey]gpt2.Backend

	holding sync.Mutex                   // of held: queues of several GPUs make work ready at once
	held    map[backendKey]*gpt2.Session // sessions that keep weights ready
}

type backendKey struct{ device, dtype string }

// Device is what samples say of a device.
type Device struct {
	Key       string // names it, with versions and threads: [ceilings.Set.Key]
	Processor string // names it, whatever the number of threads
	Threads   int    // of a CPU
	Kernels   string // that a CPU runs: [cpu.Backend.ISA]
	Ceilings  ceilings.Set
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
	m = &Machine{Name: o.Name, Model: o.Model, backends: map[backendKey]gpt2.Backend{},
		held: map[backendKey]*gpt2.Session{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	types := map[string]weights.DType{Float32: weights.F32, BFloat16: weights.BF16}
	var first *cpu.Backend
	for _, dtype := range []string{Float32, BFloat16} {
		if !o.CPU && (o.Model == nil || dtype != Float32) { // float32 also checks a GPU's results
			continue
		}
		// One team of threads: those of another would still spin on the cores when the next task begins.
		b, err := cpu.New(cpu.Options{Threads: o.Threads, DType: types[dtype], Share: first})
		if err != nil {
			return m, err
		}
		m.backends[backendKey{CPU, dtype}] = b
		if first = b; o.CPU && dtype == Float32 {
			m.Team = b.Team()
		}
	}
	if len(o.GPUs) == 0 {
		return m, nil
	}
	lib, err := cuda.Open()
	if err != nil {
		return m, err
	}
	m.nvml, _ = nvml.Open()
	launched := exec.Graph // as in stored samples; mode auto may run decode steps in one kernel
	if nvtx.Tool() != "" {
		launched = exec.Eager
	}
	if o.Model == nil {
		delete(types, BFloat16) // float32 measures ceilings
	}
	for _, i := range o.GPUs {
		dev, err := lib.Device(i)
		if err != nil {
			return m, err
		}
		name := fmt.Sprintf("%s:%d", GPU, i)
		g, err := OpenGPU(dev, name)
		if err != nil {
			return m, err
		}
		m.GPUs = append(m.GPUs, g)
		for dtype, d := range types {
			b, err := exec.NewOn(lib, exec.Options{Device: i, DType: d, Mode: launched})
			if err != nil {
				return m, err
			}
			m.backends[backendKey{name, dtype}] = b
		}
	}
	return m, nil
}

// Close frees what the machine's devices hold.
func (m *Machine) Close() (err error) {
	for _, s := range m.held {
		err = errors.Join(err, s.Close())
	}
	for _, g := range m.GPUs {
		err = errors.Join(err, g.Close())
	}
	if m.nvml != nil {
		m.nvml.Close()
	}
	for _, dtype := range []string{BFloat16, Float32} { // the first lent its threads
		for k, b := range m.backends {
			if k.dtype == dtype {
				err = errors.Join(err, b.Close())
			}
		}
	}
	return err
}

// backend returns the executor of a key, with the weights of the model kept ready for the sessions that come.
func (m *Machine) backend(ctx context.Context, key backendKey) (gpt2.Backend, error) {
	b := m.backends[key]
	if b == nil {
		return nil, fmt.Errorf("device %s does not run the model in %s", key.device, key.dtype)
	}
	m.holding.Lock()
	defer m.holding.Unlock()
	if m.held[key] == nil {
		s, err := gpt2.NewSession(ctx, m.Model, b, gpt2.Options{Context: 1})
		if err != nil {
			return nil, err
		}
		m.held[key] = s
	}
	return b, nil
}

// Measurer returns what measures the ceilings of a device.
func (m *Machine) Measurer(device string) gpt2.Backend {
	return m.backends[backendKey{device, Float32}]
}

// SetCeilings says what a device can do, from which floors are computed.
func (m *Machine) SetCeilings(device string, set ceilings.Set) {
	if g := m.gpu(device); g != nil {
		g.About = Device{Key: set.Key, Processor: g.Device.Info().Name, Ceilings: set}
	} else if b, ok := m.backends[backendKey{CPU, Float32}].(*cpu.Backend); ok {
		m.CPU = Device{set.Key, cpu.Processor(b.ISA()), b.Threads(), b.ISA(), set}
	}
}

func (m *Machine) device(name string) *Device {
	if g := m.gpu(name); g != nil {
		return &g.About
	}
	return &m.CPU
}

// gpu returns the GPU "cuda:1", nil if it is not open.
func (m *Machine) gpu(name string) *GPUDevice {
	if i := slices.IndexFunc(m.GPUs, func(g *GPUDevice) bool { return g.name == name }); i >= 0 {
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
	for _, g := range m.GPUs {
		out = append(out, g.name)
	}
	return out
}

// PCI returns the PCI addresses of the devices, "" for the CPU, which is the first.
func (m *Machine) PCI() []string {
	all := []string{""}
	for _, g := range m.GPUs {
		all = append(all, g.Device.Info().PCI)
	}
	return all
}

// Keys returns what names the devices: see [Device].
func (m *Machine) Keys() (all []string) {
	for _, name := range m.Devices() {
		all = append(all, m.device(name).Key)
	}
	return all
}

package nvml

import (
	"encoding/binary"
	"fmt"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is the real one. go-nvml binds lazily, and a call of a function that an old driver lacks ends the process, so
// has looks up each function first.
type library struct {
	i    lib.Interface
	name string // of the file
}

func newLibrary() *library {
	const name = "libnvidia-ml.so.1"
	return &library{lib.New(lib.WithLibraryPath(name)), name}
}

func (l *library) open() error {
	switch ret := l.i.Init(); ret {
	case lib.SUCCESS:
		return nil
	case lib.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("NVML (%s) was not found: it comes with the NVIDIA driver", l.name)
	case lib.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("NVML (%s) is there, but the NVIDIA driver is not loaded", l.name)
	case lib.ERROR_NO_PERMISSION:
		return fmt.Errorf("NVML (%s) may not talk to the NVIDIA driver: no permission", l.name)
	default:
		return fmt.Errorf("NVML (%s) cannot be used: %s", l.name, lib.ErrorString(ret))
	}
}

func (l *library) close() { l.i.Shutdown() }

// has reports whether the driver's library has a function.
func (l *library) has(function string) bool { return l.i.Extensions().LookupSymbol(function) == nil }

func (l *library) driver() string {
	if l.has("nvmlSystemGetDriverVersion") {
		if v, ret := l.i.SystemGetDriverVersion(); ret == lib.SUCCESS {
			return v
		}
	}
	return ""
}

func (l *library) cuda() int {
	if l.has("nvmlSystemGetCudaDriverVersion") {
		if v, ret := l.i.SystemGetCudaDriverVersion(); ret == lib.SUCCESS {
			return v
		}
	}
	return 0
}

func (l *library) devices() ([]device, error) {
	n, ret := l.i.DeviceGetCount()
	if ret != lib.SUCCESS {
		return nil, fmt.Errorf("NVML cannot count the GPUs: %s", lib.ErrorString(ret))
	}
	out := make([]device, 0, n)
	for i := range n {
		d, ret := l.i.DeviceGetHandleByIndex(i)
		switch ret {
		case lib.SUCCESS:
			out = append(out, gpu{l, d})
		case lib.ERROR_NO_PERMISSION: // a GPU that this container may not use
		default:
			return nil, fmt.Errorf("NVML cannot open GPU %d: %s", i, lib.ErrorString(ret))
		}
	}
	return out, nil
}

// gpu is a device of the real library.
type gpu struct {
	l *library
	d lib.Device
}

func (g gpu) pci() (domain, bus, device uint32, ok bool) {
	p, ret := g.d.GetPciInfo()
	return p.Domain, p.Bus, p.Device, ret == lib.SUCCESS
}

func (g gpu) name() (name, uuid string, ok bool) {
	name, ret := g.d.GetName()
	uuid, _ = g.d.GetUUID()
	return name, uuid, ret == lib.SUCCESS
}

func (g gpu) capability() (major, minor int, ok bool) {
	if !g.l.has("nvmlDeviceGetCudaComputeCapability") {
		return 0, 0, false
	}
	major, minor, ret := g.d.GetCudaComputeCapability()
	return major, minor, ret == lib.SUCCESS
}

func (g gpu) memory() (free, total uint64, ok bool) {
	m, ret := g.d.GetMemoryInfo()
	return m.Free, m.Total, ret == lib.SUCCESS
}

// numbers has for each reading the name of NVML's function, and the call.
var numbers = [readings]struct {
	function string
	call     func(lib.Device) (uint64, lib.Return)
}{
	smClock:     {"nvmlDeviceGetClockInfo", with(lib.Device.GetClockInfo, lib.CLOCK_SM)},
	smClockMax:  {"nvmlDeviceGetMaxClockInfo", with(lib.Device.GetMaxClockInfo, lib.CLOCK_SM)},
	memClock:    {"nvmlDeviceGetClockInfo", with(lib.Device.GetClockInfo, lib.CLOCK_MEM)},
	memClockMax: {"nvmlDeviceGetMaxClockInfo", with(lib.Device.GetMaxClockInfo, lib.CLOCK_MEM)},
	// Its newer name, ...ClocksEventReasons, is missing in drivers before 535.
	throttle:     {"nvmlDeviceGetCurrentClocksThrottleReasons", lib.Device.GetCurrentClocksThrottleReasons},
	linkGen:      {"nvmlDeviceGetCurrPcieLinkGeneration", wide(lib.Device.GetCurrPcieLinkGeneration)},
	linkGenMax:   {"nvmlDeviceGetMaxPcieLinkGeneration", wide(lib.Device.GetMaxPcieLinkGeneration)},
	linkWidth:    {"nvmlDeviceGetCurrPcieLinkWidth", wide(lib.Device.GetCurrPcieLinkWidth)},
	linkWidthMax: {"nvmlDeviceGetMaxPcieLinkWidth", wide(lib.Device.GetMaxPcieLinkWidth)},
	power:        {"nvmlDeviceGetPowerUsage", wide(lib.Device.GetPowerUsage)},
	powerLimit:   {"nvmlDeviceGetEnforcedPowerLimit", wide(lib.Device.GetEnforcedPowerLimit)},
	temperature:  {"nvmlDeviceGetTemperature", with(lib.Device.GetTemperature, lib.TEMPERATURE_GPU)},
	energy:       {"nvmlDeviceGetTotalEnergyConsumption", lib.Device.GetTotalEnergyConsumption},
	powerNow: {"nvmlDeviceGetFieldValues", func(d lib.Device) (uint64, lib.Return) {
		return field(d, lib.FI_DEV_POWER_INSTANT)
	}},
	utilisation: {"nvmlDeviceGetUtilizationRates", func(d lib.Device) (uint64, lib.Return) {
		u, ret := d.GetUtilizationRates()
		return uint64(u.Gpu), ret
	}},
	processes: {"nvmlDeviceGetComputeRunningProcesses", func(d lib.Device) (uint64, lib.Return) {
		all, ret := d.GetComputeRunningProcesses()
		return uint64(len(all)), ret
	}},
	memoryUsed: {"nvmlDeviceGetMemoryInfo", func(d lib.Device) (uint64, lib.Return) {
		m, ret := d.GetMemoryInfo()
		return m.Used, ret
	}},
}

// wide makes a reading a uint64.
func wide[T int | uint32](f func(lib.Device) (T, lib.Return)) func(lib.Device) (uint64, lib.Return) {
	return func(d lib.Device) (uint64, lib.Return) {
		v, ret := f(d)
		return uint64(v), ret
	}
}

// with is wide of a reading of which there are several kinds.
func with[K any](f func(lib.Device, K) (uint32, lib.Return), kind K) func(lib.Device) (uint64, lib.Return) {
	return wide(func(d lib.Device) (uint32, lib.Return) { return f(d, kind) })
}

// field reads a field that is an unsigned number.
func field(d lib.Device, id uint32) (uint64, lib.Return) {
	values := []lib.FieldValue{{FieldId: id}}
	if ret := d.GetFieldValues(values); ret != lib.SUCCESS {
		return 0, ret
	}
	v := values[0]
	if ret := lib.Return(v.NvmlReturn); ret != lib.SUCCESS {
		return 0, ret
	}
	switch lib.ValueType(v.ValueType) {
	case lib.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(v.Value[:])), lib.SUCCESS
	case lib.VALUE_TYPE_UNSIGNED_LONG, lib.VALUE_TYPE_UNSIGNED_LONG_LONG: // both of 64 bits, as on Linux
		return binary.NativeEndian.Uint64(v.Value[:]), lib.SUCCESS
	}
	return 0, lib.ERROR_NOT_SUPPORTED
}

func (g gpu) number(r reading) (uint64, bool) {
	n := numbers[r]
	if !g.l.has(n.function) {
		return 0, false
	}
	v, ret := n.call(g.d)
	return v, ret == lib.SUCCESS
}

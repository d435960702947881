package nvml

import (
	"encoding/binary"
	"fmt"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Open opens the library and finds the GPUs. An error says in one sentence what is missing.
func Open() (*NVML, error) {
	const name = "libnvidia-ml.so.1"
	library := lib.New(lib.WithLibraryPath(name))
	switch ret := library.Init(); ret {
	case lib.SUCCESS:
	case lib.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("NVML (%s) was not found: it comes with the NVIDIA driver", name)
	case lib.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("NVML (%s) is there, but the NVIDIA driver is not loaded", name)
	case lib.ERROR_NO_PERMISSION:
		return nil, fmt.Errorf("NVML (%s) may not talk to the NVIDIA driver: no permission", name)
	default:
		return nil, fmt.Errorf("NVML (%s) cannot be used: %s", name, lib.ErrorString(ret))
	}
	n := &NVML{shutdown: func() { library.Shutdown() }}
	if err := n.find(library); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// find finds the GPUs. go-nvml binds lazily, and a call of a function that an old driver lacks ends the process, so each
// function is looked up first.
func (n *NVML) find(library lib.Interface) error {
	count, ret := library.DeviceGetCount()
	if ret != lib.SUCCESS {
		return fmt.Errorf("NVML cannot count the GPUs: %s", lib.ErrorString(ret))
	}
	for i := range count {
		d, ret := library.DeviceGetHandleByIndex(i)
		if ret == lib.ERROR_NO_PERMISSION { // a GPU that this container may not use
			continue
		}
		if ret != lib.SUCCESS {
			return fmt.Errorf("NVML cannot open GPU %d: %s", i, lib.ErrorString(ret))
		}
		g := device{number: func(r reading) (uint64, bool) {
			if library.Extensions().LookupSymbol(numbers[r].function) != nil {
				return 0, false
			}
			v, ret := numbers[r].call(d)
			return v, ret == lib.SUCCESS
		}}
		if p, ret := d.GetPciInfo(); ret == lib.SUCCESS {
			g.pci = fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device) // as cuda.DeviceInfo has it
		}
		g.uuid, _ = d.GetUUID()
		n.devices = append(n.devices, g)
	}
	return nil
}

// number is the name of a function of NVML's, and its call.
type number struct {
	function string
	call     func(lib.Device) (uint64, lib.Return)
}

var numbers = [readings]number{
	smClock:    {"nvmlDeviceGetClockInfo", with(lib.Device.GetClockInfo, lib.CLOCK_SM)},
	smClockMax: {"nvmlDeviceGetMaxClockInfo", with(lib.Device.GetMaxClockInfo, lib.CLOCK_SM)},
	// Its newer name, ...ClocksEventReasons, is missing in drivers before 535.
	throttle: {"nvmlDeviceGetCurrentClocksThrottleReasons", lib.Device.GetCurrentClocksThrottleReasons},
	power:    {"nvmlDeviceGetPowerUsage", wide(lib.Device.GetPowerUsage)},
	powerNow: {"nvmlDeviceGetFieldValues", func(d lib.Device) (uint64, lib.Return) {
		return field(d, lib.FI_DEV_POWER_INSTANT)
	}},
	energy: {"nvmlDeviceGetTotalEnergyConsumption", lib.Device.GetTotalEnergyConsumption},
	utilisation: {"nvmlDeviceGetUtilizationRates", func(d lib.Device) (uint64, lib.Return) {
		u, ret := d.GetUtilizationRates()
		return uint64(u.Gpu), ret
	}},
	memoryTotal: memory(func(m lib.Memory) uint64 { return m.Total }),
	memoryFree:  memory(func(m lib.Memory) uint64 { return m.Free }),
	memoryUsed:  memory(func(m lib.Memory) uint64 { return m.Used }),
	processes: {"nvmlDeviceGetComputeRunningProcesses", func(d lib.Device) (uint64, lib.Return) {
		all, ret := d.GetComputeRunningProcesses()
		return uint64(len(all)), ret
	}},
}

func memory(of func(lib.Memory) uint64) number {
	return number{"nvmlDeviceGetMemoryInfo", func(d lib.Device) (uint64, lib.Return) {
		m, ret := d.GetMemoryInfo()
		return of(m), ret
	}}
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

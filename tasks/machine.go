package tasks

import (
	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// Machine is the devices that tasks run on.
type Machine struct {
	Name string // for people
	Team *cpu.Team
	CPU  Device
}

// Device is what samples say of a device.
type Device struct {
	Key      string // names it, with versions and threads: [ceilings.Set.Key]
	Ceilings ceilings.Set
}

// device returns the device that a case runs on.
func (m *Machine) device(string) Device { return m.CPU }

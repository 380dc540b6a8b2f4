package config

import "fmt"

// Warm configures templates: saved VMs, from which others are restored instead of booted.
type Warm struct {
	Size        Size `toml:"size"`         // of all templates of a node together
	MountSlots  int  `toml:"mount_slots"`  // mounts that a VM from a template can have
	DeviceSlots int  `toml:"device_slots"` // virtual functions that a VM from a template can have
	Automatic   bool `toml:"automatic"`    // a job that finds no template makes one
}

// Start is how VMs start.
type Start string

// The values of Start.
const (
	StartAuto Start = "auto" // from a template if one fits, else by booting
	StartWarm Start = "warm" // from a template, which the node makes first if it has none
	StartCold Start = "cold" // by booting
)

// Check refuses a text that is not a Start.
func (s Start) Check() error {
	switch s {
	case StartAuto, StartWarm, StartCold:
		return nil
	}
	return fmt.Errorf("%s is not allowed; use auto, warm or cold", Quote(string(s)))
}

func (s Start) validate() error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("defaults.start: %w", err)
	}
	return nil
}

func (w Warm) validate() error {
	return firstOf(
		sizeWithin("warm.size", w.Size, 0, 1<<34),
		within("warm.mount_slots", w.MountSlots, 0, 16),
		within("warm.device_slots", w.DeviceSlots, 0, 16),
	)
}

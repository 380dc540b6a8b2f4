package config

import "fmt"

// Warm is about templates: saved VMs, of which others are restored instead of being
// booted.
type Warm struct {
	Size        Size `toml:"size"`         // that all templates of a node may have together
	MountSlots  int  `toml:"mount_slots"`  // mounts that a VM from a template can have
	DeviceSlots int  `toml:"device_slots"` // virtual functions that it can have
	Automatic   bool `toml:"automatic"`    // a job that finds no template makes one
}

// Start is how VMs come up.
type Start string

// The values of Start.
const (
	StartAuto Start = "auto" // from a template where there is one that fits, else by booting
	StartWarm Start = "warm" // from a template, which is made first if there is none
	StartCold Start = "cold" // by booting
)

// Check refuses a text that is no Start.
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

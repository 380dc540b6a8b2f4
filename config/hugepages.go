package config

import (
	"fmt"
	"slices"
)

// HugePages says what kind of pages the VMs' memory has.
type HugePages string

// The values of HugePages.
const (
	HugePagesAuto HugePages = "auto" // huge pages for VMs with VFs, if the node has enough of them
	HugePagesNo   HugePages = "no"   // ordinary pages
	HugePages2M   HugePages = "2M"
	HugePages1G   HugePages = "1G"
)

// Size returns the size of the huge pages that h names; 0 if it names none.
func (h HugePages) Size() Size {
	switch h {
	case HugePages2M:
		return 2
	case HugePages1G:
		return 1 << 10
	}
	return 0
}

// Check refuses a text that is not a HugePages.
func (h HugePages) Check() error {
	if h.Size() != 0 || h == HugePagesAuto || h == HugePagesNo {
		return nil
	}
	return fmt.Errorf("%s is not allowed; use auto, no, 2M or 1G", Quote(string(h)))
}

// CheckHugePages refuses huge pages that jobs may not have.
func (l Limits) CheckHugePages(h HugePages) error {
	if err := h.Check(); err != nil {
		return err
	}
	if h.Size() != 0 && !slices.Contains(l.HugePages, h) {
		return fmt.Errorf("%s is not allowed at this site (limits.hugepages); use no", h)
	}
	return nil
}

func (l Limits) validateHugePages() error {
	for _, h := range l.HugePages {
		if err := oneOf("limits.hugepages", h, HugePages2M, HugePages1G); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) validateDefaultHugePages() error {
	const key = "defaults.hugepages"
	d := c.Defaults
	if err := c.Limits.CheckHugePages(d.HugePages); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if d.HugePages.Size() != 0 && d.Start == StartWarm {
		return fmt.Errorf(`%s: %s is not possible with defaults.start = "warm": VMs from a template have ordinary pages`, key, d.HugePages)
	}
	return nil
}

package sriov

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfs is the root directory below which sys/ and dev/ lie. What cannot be read
// is what the kernel does not say there: the methods return its absence.
type sysfs string

func (s sysfs) path(elements ...string) string {
	return filepath.Join(append([]string{string(s)}, elements...)...)
}

// device is the directory of a PCI device.
func (s sysfs) device(pci string) string { return s.path("sys/bus/pci/devices", pci) }

// driver is the directory of a driver of PCI devices, or a file in it.
func (s sysfs) driver(name, file string) string { return s.path("sys/bus/pci/drivers", name, file) }

func (s sysfs) exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// target is the last element of what a link names, "" if there is none.
func (s sysfs) target(dir, link string) string {
	to, err := os.Readlink(filepath.Join(dir, link))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

func (s sysfs) text(elements ...string) string {
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// number returns absent where there is no number.
func (s sysfs) number(absent int, elements ...string) int {
	n, err := strconv.Atoi(s.text(elements...))
	if err != nil {
		return absent
	}
	return n
}

func (s sysfs) list(elements ...string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(elements...))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// override is the device's driver_override, "" for none.
func (s sysfs) override(pci string) string {
	text := s.text(s.device(pci), "driver_override")
	if text == "(null)" {
		return ""
	}
	return text
}

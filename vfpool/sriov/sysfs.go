package sriov

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfs is the root directory that contains sys/ and dev/. The methods return "absent"
// for files that cannot be read: the kernel makes no statement there.
type sysfs string

func (s sysfs) path(elements ...string) string {
	return filepath.Join(append([]string{string(s)}, elements...)...)
}

// device returns the directory of a PCI device.
func (s sysfs) device(pci string) string { return s.path("sys/bus/pci/devices", pci) }

// driver returns the directory of a driver of PCI devices, or a file in it.
func (s sysfs) driver(name, file string) string { return s.path("sys/bus/pci/drivers", name, file) }

func (s sysfs) exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// target returns the last element of the path that a link points to; "" without a link.
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

// number returns absent if the file contains no number.
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

// override returns the device's driver_override; "" if it has none.
func (s sysfs) override(pci string) string {
	text := s.text(s.device(pci), "driver_override")
	if text == "(null)" {
		return ""
	}
	return text
}

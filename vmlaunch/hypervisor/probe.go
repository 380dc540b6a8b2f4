package hypervisor

import (
	"fmt"
	"path/filepath"
)

// Probe opens libvirt's QEMU driver as a launch does, with its root in the
// empty directory dir, and returns the version of the library.
func Probe(dir string) (string, error) {
	if err := ForbidLinks(dir); err != nil {
		return "", err
	}
	defer allowLinks(dir)
	d, err := Open(dir, filepath.Join(dir, "probe-cache"), filepath.Join(dir, "probe-logs"))
	if err != nil {
		return "", err
	}
	defer d.Close()
	v, err := d.conn.GetLibVersion()
	if err != nil {
		return "", fmt.Errorf("ask libvirt for its version: %w", plain(err))
	}
	return fmt.Sprintf("%d.%d.%d", v/1000000, v/1000%1000, v%1000), nil
}

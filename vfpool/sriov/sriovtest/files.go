package sriovtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A tree is the files of a node: sys/, dev/ and what the node remembers.
type tree struct{ Root string }

func (t tree) path(elements ...string) string {
	return filepath.Join(append([]string{t.Root}, elements...)...)
}

func (t tree) device(pci string, file ...string) string {
	return t.path(append([]string{"sys/bus/pci/devices", pci}, file...)...)
}

// groupFile is /dev/vfio/GROUP of a VF.
func (t tree) groupFile(pci string) string {
	link, err := os.Readlink(t.device(pci, "iommu_group"))
	if err != nil {
		return t.path("dev/vfio/none")
	}
	return t.path("dev/vfio", filepath.Base(link))
}

// write makes a file and the directories that it is in.
func (t tree) write(text string, elements ...string) error {
	path := t.path(elements...)
	return firstError(os.MkdirAll(filepath.Dir(path), 0o755), replace(path, text))
}

func (t tree) link(to string, elements ...string) error {
	path := t.path(elements...)
	next := path + ".next"
	err := firstError(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(next))
	if err == nil {
		err = os.Symlink(to, next)
	}
	if err == nil {
		err = os.Rename(next, path) // a reader finds the old link or the new one
	}
	return err
}

// A vf is what the fake remembers of one that sysfs does not show.
type vf struct {
	Settings device.Settings
	Dirty    bool // a guest has left something in it
	Busy     int  // times that it will say so
}

func (t tree) stateFile(pci string) string { return t.path("vfs", pci+".json") }

func (t tree) load(pci string) (v vf, err error) {
	text, err := os.ReadFile(t.stateFile(pci))
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(text, &v)
}

func (t tree) save(pci string, v vf) error { return writeJSON(t.stateFile(pci), v) }

// writeJSON is one write of one length, in place: the process may be killed before
// or after it, and a guest may have the file open.
func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%-600s", text)
	return firstError(err, file.Close())
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

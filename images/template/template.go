// Package template keeps saved VMs on a node, from which other VMs are restored.
//
// A template is a directory with the state that libvirt has saved of a VM which had just
// booted, the disk that the VM had then, and a description. Its name is the hash of its
// [Shape]: everything that another VM must have in common with it to go on from there. So a
// template is never changed, and a template that no longer fits is never found.
//
// A template that a user's job has made belongs to that user ([Own]), and jobs of other
// users never look there. A template that root has made of an image of the site's catalogue
// ([Site]) is for all users: each user gets a copy, since QEMU must be able to write to the
// files that it maps.
//
// A template is made in a directory beside the others, and the directory is renamed when it
// is complete and on disk. So nobody ever sees half of a template. [Store.Find] makes the
// caller write the template's use into its journal, and [Draft.Publish] makes room by removing
// templates that no journal of the node names. Both use the same lock.
package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
)

// A Shape is what a VM must have in common with a template to be restored from it.
type Shape struct {
	Named     string                `json:"named"` // the image's path, as jobs name it; people know the image by it, VMs may read a copy
	Image     []images.FileIdentity `json:"image"` // the files that VMs read: the image and all that it is based on, or their copies
	DiskMiB   int64                 `json:"disk_mib"`
	VCPUs     int                   `json:"vcpus"`
	Threads   int                   `json:"threads"`   // that each core has, as the guest knows it
	Dedicated bool                  `json:"dedicated"` // the guest knows that its vCPUs have CPUs to themselves
	Memory    int64                 `json:"memory_mib"`
	UEFI      images.FileIdentity   `json:"uefi"` // the firmware; zero for BIOS
	Machine   string                `json:"machine"`
	Accel     config.Accel          `json:"accel"`
	CPU       string                `json:"cpu"` // the CPU model's name; see hypervisor.CPUModel
	Emulator  string                `json:"emulator"`
	QEMU      string                `json:"qemu"`   // versions of QEMU and libvirt
	Queues    int                   `json:"queues"` // of the NIC
	Mounts    int                   `json:"mount_slots"`
	Devices   int                   `json:"device_slots"`
	NVDIMM    bool                  `json:"nvdimm,omitempty"` // it has slots for them
	Version   string                `json:"version"`          // of Slurm-V, which describes and sets up VMs
	Guest     images.FileIdentity   `json:"guest"`            // the guest agent
}

// Key is the name of templates of this shape. How jobs name the image is nothing that VMs have in common.
func (s Shape) Key() string {
	s.Named = ""
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Differs says in a few words how the shape differs from the shape of a template of an
// image of the same name; "" if the template is of another image.
func (s Shape) Differs(from Shape) string {
	switch {
	case s.Named == "" || s.Named != from.Named:
		return ""
	case !slices.Equal(s.Image, from.Image):
		return "the image has changed since, or the node has another copy of it"
	case s.UEFI.Path != from.UEFI.Path:
		return "it has booted with other firmware"
	case s.VCPUs != from.VCPUs:
		return fmt.Sprintf("it has %d vCPUs, and not %d", from.VCPUs, s.VCPUs)
	case s.Memory != from.Memory:
		return fmt.Sprintf("it has %d MiB of memory, and not %d", from.Memory, s.Memory)
	case s.DiskMiB != from.DiskMiB:
		return "it has a disk of another size"
	case s.Version != from.Version || s.Guest != from.Guest || from.Threads == 0: // old ones do not say
		return "it was made by another version of Slurm-V"
	case s.Threads != from.Threads:
		return fmt.Sprintf("it has %d hyper-threads per core, and not %d", from.Threads, s.Threads)
	case from.Dedicated && !s.Dedicated:
		return "it is for VMs that have CPUs to themselves"
	case s.Dedicated && !from.Dedicated:
		return "it is for VMs that have no CPUs to themselves"
	case s.QEMU != from.QEMU || s.Emulator != from.Emulator:
		return "it was made by another version of QEMU or libvirt"
	}
	return "the node or its configuration has changed since"
}

// A Whose is the owner of templates: one user, or all users.
type Whose string

// Site is for all users: root makes these templates, of images of the catalogue.
const Site Whose = "site"

// Own is one user.
func Own(uid uint32) Whose { return Whose(strconv.FormatUint(uint64(uid), 10)) }

// A Template is a directory with a saved VM.
type Template struct {
	Dir   string
	Whose Whose
	About
}

// About describes a template.
type About struct {
	Shape   Shape     `json:"shape"`
	Created time.Time `json:"created"`
	Bytes   int64     `json:"-"` // on disk
	Used    time.Time `json:"-"` // last
}

// The files of a template. The QEMUs of its users open memory, disk, seed and nothing; the
// others belong to root.
const (
	aboutFile  = "template.json"
	savedFile  = "saved"
	memoryFile = "memory"
	diskFile   = "disk.qcow2"
	blankFile  = "overlay.qcow2"
	seedFile   = "seed.iso"
	emptyDir   = "nothing"
)

// Saved is the file that libvirt has saved, without the memory.
func (t Template) Saved() string { return filepath.Join(t.Dir, savedFile) }

// Memory is the file with the VM's memory. VMs map it, and each gets its own copy of the
// pages that it writes to.
func (t Template) Memory() string { return filepath.Join(t.Dir, memoryFile) }

// Disk is the disk that the VM had. Overlays of restored VMs lie on top of it.
func (t Template) Disk() string { return filepath.Join(t.Dir, diskFile) }

// Blank is an empty overlay on the disk.
func (t Template) Blank() string { return filepath.Join(t.Dir, blankFile) }

// Seed is the seed disk that the VM booted with.
func (t Template) Seed() string { return filepath.Join(t.Dir, seedFile) }

// Nothing is an empty directory, for unused mount slots.
func (t Template) Nothing() string { return filepath.Join(t.Dir, emptyDir) }

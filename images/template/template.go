// Package template keeps saved VMs of a node, of which others are restored.
//
// A template is a directory: what libvirt has saved of a VM that had just booted, the disk
// that it had then, and a description. Its name is the hash of its [Shape], which is all
// that has to be equal for another VM to go on from there; so a template is never changed,
// and one that does not fit any more is never found.
//
// What a user's job has made is that user's ([Own]), and no other's job looks there. What
// root has made of an image of the site's catalogue ([Site]) is for all: each user gets a
// copy, since QEMU has to be able to write to the files that it maps.
//
// A template is made in a directory beside the others and renamed when it is complete and
// on disk, so nobody ever sees half of one. [Store.Find] has the use of what it finds
// written into the caller's journal, and [Draft.Publish] makes room by removing what no
// journal of the node names, under one lock.
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
	Image    []images.FileIdentity `json:"image"` // the image and all that it is based on
	DiskMiB  int64                 `json:"disk_mib"`
	VCPUs    int                   `json:"vcpus"`
	Memory   int64                 `json:"memory_mib"`
	Machine  string                `json:"machine"`
	Accel    config.Accel          `json:"accel"`
	CPU      string                `json:"cpu"` // model, or what the host's own is
	Emulator string                `json:"emulator"`
	QEMU     string                `json:"qemu"` // version, and libvirt's
	Mounts   int                   `json:"mount_slots"`
	Devices  int                   `json:"device_slots"`
	Version  string                `json:"version"` // of Slurm-V, and so of what describes and sets up VMs
	Guest    images.FileIdentity   `json:"guest"`   // the guest agent
}

// Key is the name of templates of this shape.
func (s Shape) Key() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it is texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Differs says in a few words how the shape is unlike that of a template of an image at
// the same path; "" if the image is another one.
func (s Shape) Differs(from Shape) string {
	switch {
	case len(s.Image) == 0 || len(from.Image) == 0 || s.Image[0].Path != from.Image[0].Path:
		return ""
	case !slices.Equal(s.Image, from.Image):
		return "the image has changed since"
	case s.VCPUs != from.VCPUs:
		return fmt.Sprintf("it has %d vCPUs, and not %d", from.VCPUs, s.VCPUs)
	case s.Memory != from.Memory:
		return fmt.Sprintf("it has %d MiB of memory, and not %d", from.Memory, s.Memory)
	case s.DiskMiB != from.DiskMiB:
		return "it has a disk of another size"
	case s.Version != from.Version || s.Guest != from.Guest:
		return "it was made by another version of Slurm-V"
	case s.QEMU != from.QEMU || s.Emulator != from.Emulator:
		return "it was made by another version of QEMU or libvirt"
	}
	return "the node or its configuration has changed since"
}

// A Whose is whose templates are meant: a user's, or everybody's.
type Whose string

// Site is everybody's: made by root of images of the catalogue.
const Site Whose = "site"

// Own is a user's.
func Own(uid uint32) Whose { return Whose(strconv.FormatUint(uint64(uid), 10)) }

// A Template is a directory with a saved VM.
type Template struct {
	Dir   string
	Whose Whose
	About
}

// About is what is written down beside a template.
type About struct {
	Shape   Shape     `json:"shape"`
	Created time.Time `json:"created"`
	Bytes   int64     `json:"-"` // on disk
	Used    time.Time `json:"-"` // last
}

// The files of a template. QEMU of those who use it opens memory, disk, seed and nothing;
// the others are root's.
const (
	aboutFile  = "template.json"
	savedFile  = "saved"
	memoryFile = "memory"
	diskFile   = "disk.qcow2"
	blankFile  = "overlay.qcow2"
	seedFile   = "seed.iso"
	emptyDir   = "nothing"
)

// Saved is what libvirt has saved, without the memory.
func (t Template) Saved() string { return filepath.Join(t.Dir, savedFile) }

// Memory is what the VM had in its memory. VMs map it, each with pages of its own for what
// it writes.
func (t Template) Memory() string { return filepath.Join(t.Dir, memoryFile) }

// Disk is the disk that the VM had, below the overlays of others.
func (t Template) Disk() string { return filepath.Join(t.Dir, diskFile) }

// Blank is an overlay on the disk in which nothing is written.
func (t Template) Blank() string { return filepath.Join(t.Dir, blankFile) }

// Seed is the seed disk that the VM booted with.
func (t Template) Seed() string { return filepath.Join(t.Dir, seedFile) }

// Nothing is an empty directory, for mount slots that are not used.
func (t Template) Nothing() string { return filepath.Join(t.Dir, emptyDir) }

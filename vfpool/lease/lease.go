// Package lease keeps which job has which virtual function (VF) of a node, such
// that a crash at any instant neither loses a VF nor gives it to two jobs.
//
// A [Store] is a directory with a file per VF that was ever leased. A process that
// changes the ownership of VFs takes the store's lock ([Store.Lock]), reads all leases
// ([Locked.All]), and adds leases ([Locked.Put]) or ends them ([Locked.Delete]). The lock
// only protects the decision, and vanishes with its process; the [Lease] says which job
// owns a VF, and stays. Once Put has returned, the lease survives a power cut. A Delete
// may not: after a power cut, the VF may still be leased to a job that has ended.
//
// The process that has a lease notes in it how far the VF has been changed
// ([Store.Update]). It needs no lock for that.
//
// A VF whose record cannot be read is in quarantine: it is listed, and not leased again
// until the administrator has looked at it. The package touches no VF.
package lease

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A Lease says that a job has a VF.
type Lease struct {
	VF    device.VF       `json:"vf"`
	Job   journal.ID      `json:"job"`
	VM    int             `json:"vm"`
	Index int             `json:"index"` // among the VFs of the VM
	Want  device.Settings `json:"want"`

	Original   *device.State `json:"original,omitempty"` // what to restore; from Saved on
	Phase      Phase         `json:"step"`
	Quarantine string        `json:"quarantine,omitempty"` // why no other job may get the VF; "" if it may

	// Put fills these in.

	BootID string `json:"boot_id"` // of the boot in which the VF was leased
	Epoch  uint64 `json:"epoch"`   // tells this lease of the VF from those before and after

	// OldBoot reports whether the node has booted since. The power-off has reset the VF,
	// so there is nothing to restore.
	OldBoot bool `json:"-"`
}

// Phase is how far a leased VF has been changed. It is written before the change.
type Phase string

// The phases, in their order.
const (
	Leased    Phase = "leased"    // the VF is unchanged
	Saved     Phase = "saved"     // Original is known; settings may be half changed
	Applied   Phase = "applied"   // settings are those wanted; drivers may be half changed
	Attached  Phase = "attached"  // ready for the VM, which may have it
	Releasing Phase = "releasing" // may be half restored
)

var phases = []Phase{Leased, Saved, Applied, Attached, Releasing}

// Key returns the key of the record's VF.
func (l Lease) Key() Key { return KeyOf(l.VF) }

// same reports whether l and other are the same lease, whatever their phases.
func (l Lease) same(other Lease) bool {
	return l.Job == other.Job && l.VM == other.VM && l.Index == other.Index && l.Epoch == other.Epoch
}

// checkAfter returns an error if a lease in state old cannot become l.
func (l Lease) checkAfter(old Lease) error {
	switch {
	case slices.Index(phases, l.Phase) < slices.Index(phases, old.Phase):
		return fmt.Errorf("step %q does not come after %q", l.Phase, old.Phase)
	case old.Original != nil && !reflect.DeepEqual(l.Original, old.Original):
		// The VF has been changed since, so a State read now is not its original one.
		return errors.New("the original state of the VF is known already and cannot be another")
	}
	return nil
}

// maxReason bounds the text of a quarantine, in bytes. JSON can encode one byte as six,
// and the text must fit into a slot beside the rest of the record.
const maxReason = 400

func (l Lease) bounded() Lease {
	if cut := maxReason; len(l.Quarantine) > cut {
		for !utf8.RuneStart(l.Quarantine[cut]) {
			cut--
		}
		l.Quarantine = l.Quarantine[:cut] + "…"
	}
	return l
}

// A Key names a VF on its node. The key of a real VF is its PCI address, because its PF
// can be renamed while the VF is leased.
type Key string

// KeyOf returns the key of a VF. It reads only Kind and PCI or, for a software VF, PF and
// Index.
func KeyOf(vf device.VF) Key {
	if vf.Kind == device.SRIOV {
		return Key(string(vf.Kind) + "-" + url.PathEscape(vf.PCI))
	}
	return Key(string(vf.Kind) + "-" + url.PathEscape(vf.PF) + "." + strconv.Itoa(vf.Index))
}

// vf returns the fields of the VF that the key contains.
func (k Key) vf() (device.VF, error) {
	kind, rest, _ := strings.Cut(string(k), "-")
	vf := device.VF{Kind: device.Kind(kind), Group: -1, NUMA: -1}
	var err error
	switch vf.Kind {
	case device.SRIOV:
		vf.PCI, err = url.PathUnescape(rest)
	case device.Software:
		dot := max(strings.LastIndexByte(rest, '.'), 0)
		vf.Index, err = strconv.Atoi(strings.TrimPrefix(rest[dot:], "."))
		vf.PF = rest[:dot]
		if pf, unescape := url.PathUnescape(vf.PF); unescape == nil {
			vf.PF = pf
		}
	}
	if err != nil || KeyOf(vf) != k || vf.PF+vf.PCI == "" || vf.Index < 0 {
		return device.VF{}, fmt.Errorf("%q does not name a VF", k)
	}
	return vf, nil
}

var (
	// errTaken matches every takenError.
	errTaken = errors.New("the VF is taken")
	// errLost is the error for a lease that its job no longer has.
	errLost = errors.New("the lease has ended")
)

// A takenError says which job has a VF.
type takenError struct{ Holder Lease }

func (e *takenError) Error() string {
	if e.Holder.Quarantine != "" {
		return "in quarantine: " + e.Holder.Quarantine
	}
	return fmt.Sprintf("leased to VM %d of job %s", e.Holder.VM, e.Holder.Job)
}

// Is reports whether target is errTaken.
func (e *takenError) Is(target error) bool { return target == errTaken }

// name returns the VF's name for messages.
func name(vf device.VF) string {
	if vf.PCI != "" {
		return vf.PCI
	}
	return fmt.Sprintf("%s.%d", vf.PF, vf.Index)
}

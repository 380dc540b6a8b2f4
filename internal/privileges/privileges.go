// Package privileges permanently removes privileges from this process.
package privileges

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// noRoot makes uid 0 an ordinary user who owns root's files. Programs that the process
// starts get no capabilities for uid 0, and the setting cannot be undone.
const noRoot = cap.SecbitNoRoot | cap.SecbitNoRootLocked |

	cap.SecbitNoSetUIDFixup | cap.SecbitNoSetUIDFixupLocked |
	cap.SecbitKeepCapsLocked |
	cap.SecbitNoCapAmbientRaise | cap.SecbitNoCapAmbientRaiseLocked

// Shed permanently removes all capabilities except those in keep, and the means of gaining
// others. It affects all threads, including those of C libraries. From then on, the
// process can open only files that uid 0 may open by their permissions.
func Shed(keep []cap.Value) error {
	_, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = noRoot.Set()
	}
	if err == nil {
		err = cap.DropBound(allCapabilities()...)
	}
	if err == nil {
		err = KeepOnly(keep)
	}
	if err != nil {
		return fmt.Errorf("give up the privileges that the agent needs no more: %w", err)
	}
	return nil
}

// KeepOnly gives up all capabilities except those in keep.
func KeepOnly(keep []cap.Value) error {
	set := cap.NewSet()
	err := errors.Join(set.SetFlag(cap.Permitted, true, keep...), set.SetFlag(cap.Effective, true, keep...))
	if err != nil {
		return err
	}
	return set.SetProc()
}

// allCapabilities returns the capabilities that this kernel knows.
func allCapabilities() []cap.Value {
	all := make([]cap.Value, cap.MaxBits())
	for i := range all {
		all[i] = cap.Value(i)
	}
	return all
}

// Package privileges takes privileges from this process for good.
package privileges

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// noRoot makes uid 0 an ordinary user of files: no program that is started gets a
// capability for being root's, and nothing makes that undone.
const noRoot = cap.SecbitNoRoot | cap.SecbitNoRootLocked |

	cap.SecbitNoSetUIDFixup | cap.SecbitNoSetUIDFixupLocked |
	cap.SecbitKeepCapsLocked |
	cap.SecbitNoCapAmbientRaise | cap.SecbitNoCapAmbientRaiseLocked

// Shed takes from this process, for good, all capabilities but those to keep, and the means
// of gaining others. The calls reach all threads, those of C libraries too. Files that the
// process opens from then on are root's own: it cannot pass over permissions any more.
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

// KeepOnly gives up all capabilities but those to keep.
func KeepOnly(keep []cap.Value) error {
	set := cap.NewSet()
	err := errors.Join(set.SetFlag(cap.Permitted, true, keep...), set.SetFlag(cap.Effective, true, keep...))
	if err != nil {
		return err
	}
	return set.SetProc()
}

// allCapabilities are those that this kernel knows.
func allCapabilities() []cap.Value {
	all := make([]cap.Value, cap.MaxBits())
	for i := range all {
		all[i] = cap.Value(i)
	}
	return all
}

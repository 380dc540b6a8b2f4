package sriov

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrGone matches errors for VFs that no longer exist.
var ErrGone = errors.New("the VF has gone")

// An Error says what could not be done to which VF, and what to do about it.
type Error struct {
	PF        string
	VF        int
	PCI       string // of the VF
	Attribute string // as ip-link(8) or sysfs calls it
	Value     string
	Err       error
	Advice    string
}

func (e *Error) Error() string {
	what := strings.TrimSpace(e.Attribute + " " + e.Value)
	return fmt.Sprintf("VF %d of %s (%s): %s: %s; %s", e.VF, e.PF, e.PCI, what, cause(e.Err), e.Advice)
}

func (e *Error) Unwrap() error { return e.Err }

// cause adds the errno's name, so that users can look it up.
func cause(err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	name := unix.ErrnoName(errno)
	if errno == unix.EOPNOTSUPP {
		name = "EOPNOTSUPP" // drivers' sources use this name; ENOTSUP has the same number
	}
	return fmt.Sprintf("%v (%s)", err, name)
}

// An UnsupportedError says that a driver cannot set what was asked for.
type UnsupportedError struct {
	PF, Driver string
	Attribute  string // "vlan", "pkey", "min_tx_rate" or "max_tx_rate"
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("the driver %s of %s cannot set %s of a VF: ask for none, or for a VF of another card", e.Driver, e.PF, e.Attribute)
}

// fail returns an [*Error], or nil if err is nil.
func (o *operation) fail(attribute, value string, err error, advice string) error {
	if err == nil {
		return nil
	}
	var already *Error
	if errors.As(err, &already) {
		return err
	}
	if o.gone() && !errors.Is(err, ErrGone) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	if advice == "" {
		advice = o.advice(Attribute(attribute), err)
	}
	return &Error{o.vf.PF, o.vf.Index, o.vf.PCI, attribute, value, err, advice}
}

func (o *operation) advice(attribute Attribute, err error) string {
	invalid := errors.Is(err, unix.EINVAL)
	switch {
	case errors.Is(err, ErrGone):
		return "its card was reset or its VFs were made anew: see the kernel's log (dmesg), and list the VFs again"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "only root may, in the network namespace of the card"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Sprintf("the driver %s or the card's firmware cannot; is the card in switchdev mode (devlink dev eswitch show pci/%s)?", o.pf.Driver, o.pf.PCI)
	case attribute == Rates && invalid && !o.pf.Up && o.pf.Caps.MaxNeedsLink:
		return fmt.Sprintf("the driver %s sets rates only while the link is up: ip link set %s up, and look at the cable", o.pf.Driver, o.pf.Name)
	case attribute == Rates && invalid:
		return fmt.Sprintf("the driver %s refuses: a rate above the %d Mb/s of the link, or minima that together are above it?", o.pf.Driver, o.pf.Speed)
	case busy(err):
		return fmt.Sprintf("the card was still at it after %v: try again; if it stays so, see the kernel's log (dmesg) for %s", o.Patience, o.pf.PCI)
	default:
		return fmt.Sprintf("see the kernel's log (dmesg) for %s and %s", o.pf.PCI, o.vf.PCI)
	}
}

package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// Clock adds step to the wall clock.
func (m *Machine) Clock(step time.Duration) (now time.Time, uptime time.Duration, err error) {
	if step != 0 {
		to := unix.NsecToTimespec(time.Now().Add(step).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &to); err != nil {
			return time.Time{}, 0, fmt.Errorf("set the clock: %w", err)
		}
	}
	var monotonic unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic); err != nil {
		return time.Time{}, 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return time.Now(), time.Duration(monotonic.Nano()), nil
}

// clockSources is the kernel's directory of clock sources.
const clockSources = "sys/devices/system/clocksource/clocksource0/"

// ClockSource makes the kernel use another clock source. The kernel reports no error for a
// source that it cannot use and keeps the current one, so ClockSource compares.
func (m *Machine) ClockSource(name string) (guest.ClockSource, error) {
	s, err := m.clockSource()
	if err != nil || name == "" || name == s.Current {
		return s, err
	}
	if !slices.Contains(s.Available, name) {
		return s, fmt.Errorf("the kernel has no clock source %q", name)
	}
	if err := m.writeSysfs(clockSources+"current_clocksource", name); err != nil {
		return s, fmt.Errorf("set the clock source: %w", err)
	}
	if s, err = m.clockSource(); err == nil && s.Current != name {
		err = fmt.Errorf("the kernel keeps clock source %s and does not take %s", s.Current, name)
	}
	if err == nil {
		m.log().Warn("clock source changed", "to", name)
	}
	return s, err
}

func (s *system) clockSource() (guest.ClockSource, error) {
	current, err := readFile(s.path(clockSources + "current_clocksource"))
	if err != nil {
		return guest.ClockSource{}, err
	}
	available, err := readFile(s.path(clockSources + "available_clocksource"))
	return guest.ClockSource{Current: strings.TrimSpace(current), Available: strings.Fields(available)}, err
}

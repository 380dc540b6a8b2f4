package machine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
)

func clockDouble(t *testing.T) *double {
	t.Helper()
	return newDouble(t, map[string]string{
		clockSources + "current_clocksource":   "tsc\n",
		clockSources + "available_clocksource": "tsc hpet acpi_pm \n",
	})
}

func TestClockSource(t *testing.T) {
	tests := map[string]struct{ take, want string }{
		"asked for":      {"", "tsc"},
		"the same":       {"tsc", "tsc"},
		"another":        {"hpet", "hpet"},
		"one not there":  {"sundial", ""},
		"not its file":   {"hpet acpi_pm", ""},
		"a line of them": {"tsc\nhpet", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := clockDouble(t)
			got, err := d.ClockSource(tt.take)
			if (err != nil) != (tt.want == "") {
				t.Fatalf("error = %v", err)
			}
			want := guest.ClockSource{Current: tt.want, Available: []string{"tsc", "hpet", "acpi_pm"}}
			if diff := cmp.Diff(want, got); err == nil && diff != "" {
				t.Errorf("clock source differs (-want +got):\n%s", diff)
			}
			if now := d.text(t, clockSources+"current_clocksource"); err != nil && now != "tsc\n" {
				t.Errorf("clock source = %q", now)
			}
		})
	}
}

// The kernel keeps its clock source without an error when it cannot use another.
func TestClockSourceThatTheKernelDoesNotTake(t *testing.T) {
	d := clockDouble(t)
	d.sysfs = func(file, value string) error { return d.do("%s > %s", value, filepath.Base(file)) }
	if _, err := d.ClockSource("hpet"); err == nil {
		t.Error("no error")
	}
	if diff := cmp.Diff([]string{"hpet > current_clocksource"}, d.done); diff != "" {
		t.Errorf("what was done differs (-want +got):\n%s", diff)
	}
}

func TestNoClockSources(t *testing.T) {
	d := newDouble(t, map[string]string{})
	if s, err := d.ClockSource(""); err != nil || s.Current != "" || len(s.Available) > 0 {
		t.Errorf("clock source = %+v, %v", s, err)
	}
	if _, err := d.ClockSource("tsc"); err == nil {
		t.Error("no error")
	}
}

// The monotonic clock of this machine runs as time does.
func TestClock(t *testing.T) {
	d := newDouble(t, map[string]string{})
	before := time.Now()
	_, first, err := d.Clock(0)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	now, second, err := d.Clock(0)
	if err != nil {
		t.Fatal(err)
	}
	if passed := second - first; passed < 10*time.Millisecond || passed > time.Since(before) {
		t.Errorf("%v have passed", passed)
	}
	if off := time.Since(now); off < 0 || off > time.Since(before) {
		t.Errorf("the time is %v", now)
	}
	if _, err := os.Stat(d.path("sys")); err == nil {
		t.Error("the clock source was touched")
	}
}

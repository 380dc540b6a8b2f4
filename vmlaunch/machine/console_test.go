package machine

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

const lastMessage = "[    0.036000] Kernel panic - not syncing: IO-APIC + timer doesn't work!  Boot with apic=debug.\r\n"

func TestWhatAKernelSaysLast(t *testing.T) {
	const reason = "IO-APIC + timer doesn't work!  Boot with apic=debug."
	flood := make([]byte, 3*maxLine)
	for name, tt := range map[string]struct{ output, want string }{
		"a panic":                   {"[    0.03] x86: Booting SMP\n" + lastMessage, reason},
		"with lines behind it":      {lastMessage + "[    0.036000] CPU: 0 PID: 1 Comm: swapper/0\n", reason},
		"said again at its end":     {lastMessage + "[    0.1] ---[ end Kernel panic - not syncing: another ]---\n", reason},
		"behind a prompt":           {"vm0 login: " + lastMessage, reason},
		"behind a line without end": {string(flood) + "\n" + lastMessage, reason},
		"no panic":                  {"[    0.03] x86: Booting SMP\nKernel panics are rare\n", ""},
		"a line that has not ended": {lastMessage[:len(lastMessage)-1], ""},
	} {
		for _, size := range []int{1, 7, 4096} {
			t.Run(fmt.Sprintf("%s, by %d bytes", name, size), func(t *testing.T) {
				var l lastWords
				var got string
				for rest := []byte(tt.output); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					if why := l.in(rest[:min(size, len(rest))]); got == "" {
						got = why
					}
				}
				if got != tt.want {
					t.Errorf("the kernel says %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// A VM whose kernel has panicked is lost. One that only prints such a line is not, for its guest agent answers.
func TestAKernelThatPanics(t *testing.T) {
	const lost = `vm0 on node n1 stopped with a kernel panic: "IO-APIC + timer doesn't work!  Boot with apic=debug."`
	for name, tt := range map[string]struct {
		reported, still bool
		want            string
	}{
		"at boot":                     {false, false, lost},
		"under a program":             {true, true, lost},
		"that another program prints": {true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inside := &clockMachine{rates: map[string]float64{"tsc": 1}}
			if tt.still {
				inside.still = make(chan struct{})
			}
			s, m := clockVM(t, inside)
			if tt.still {
				s.patience = 50 * time.Millisecond
				t.Cleanup(func() { close(inside.still) }) // before the agent's end is awaited
			}
			if !tt.reported {
				m.EndSession()
				m.SetSession(nil)
			}
			printOn(t, s, m, lastMessage)
			checkLost(t, s, m, tt.want)
		})
	}
}

// printOn prints text on a VM's console, and returns when the VM's fate is decided.
func printOn(t *testing.T, s *Set, m *Machine, text string) {
	t.Helper()
	host, port := net.Pipe()
	if err := s.Record(m, host, s.Plan.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.CloseConsole)
	for _, p := range []string{text, "\n"} { // what is recorded next has been looked at before
		if _, err := io.WriteString(port, p); err != nil {
			t.Fatal(err)
		}
	}
	for m.Console.telling.Load() {
		time.Sleep(time.Millisecond)
	}
}

// checkLost checks whether the job has lost a VM, and why. "" is a VM that lives.
func checkLost(t *testing.T, s *Set, m *Machine, want string) {
	t.Helper()
	why := ""
	if err := s.Failure(); err != nil {
		why = err.Error()
	}
	if why != want {
		t.Errorf("the VM is lost because %q, want %q", why, want)
	}
	for what, ended := range map[string]<-chan struct{}{"the VM": m.Ended(), "the job": s.Gone()} {
		switch has := closed(ended); {
		case has && want == "":
			t.Errorf("%s has ended", what)
		case !has && want != "":
			t.Errorf("%s goes on", what)
		}
	}
}

// What comes of a VM's end is not its cause, and a VM that is booted behind a failed restore can end again.
func TestTheFirstReasonOfAnEnd(t *testing.T) {
	s, m := clockVM(t, &clockMachine{rates: map[string]float64{"tsc": 1}})
	m.Restoring()
	s.Stopped("u0", "crashed")
	s.Stopped("u0", "was stopped")
	if err := m.Restored(); err == nil || err.Error() != "the restored VM crashed" {
		t.Errorf("error = %v", err)
	}
	checkLost(t, s, m, "")
	s.Stopped("u0", "powered itself off")
	checkLost(t, s, m, "vm0 on node n1 powered itself off")
}

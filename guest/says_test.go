package guest

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// A guest may say anything of itself. What people see of it is bounded, and does nothing
// to a terminal.
func TestReportOfAHostileGuest(t *testing.T) {
	const clear = "\x1b[2J\a"
	endless := strings.Repeat("x", 2000)
	r := Report{
		OS: clear, Kernel: endless,
		Addresses: make([]Address, 2000), Warnings: make([]string, 2000),
	}
	r.Addresses[0], r.Warnings[0] = Address{clear, clear, clear}, clear
	r.clean()
	const plain = " [2J "
	if r.OS != plain || r.Warnings[0] != plain || r.Addresses[0] != (Address{plain, plain, plain}) {
		t.Errorf("a terminal obeys %q, %q or %q", r.OS, r.Warnings[0], r.Addresses[0])
	}
	if r.Kernel != endless[:1000] {
		t.Errorf("%d characters of a name", len(r.Kernel))
	}
	if len(r.Addresses) != maxListed || len(r.Warnings) != maxListed {
		t.Errorf("%d addresses and %d warnings", len(r.Addresses), len(r.Warnings))
	}
}

// An answer to an earlier host is not one to this one.
func TestAnAnswerToAnotherHost(t *testing.T) {
	said := "SLURMV1 READY " + nonceB + "\nSLURMV1 READY\nSLURMV1 READY " + nonceA + "\nthe first frame"
	in := bufio.NewReader(strings.NewReader(said))
	if err := awaitReady(in, nonceA); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "the first frame" {
		t.Errorf("left for the session: %q", rest)
	}
}

// The answer to a request is a guest's text like any other.
func TestAnswersOfAHostileGuest(t *testing.T) {
	for name, tt := range map[string]struct{ says, want string }{
		"what a terminal would obey": {`{"error":"no\u001b[2J"}`, "no [2J"},
		"an endless line":            {strings.Repeat("x", maxAnswer+1), "a line of more than"},
	} {
		t.Run(name, func(t *testing.T) {
			host, port := wire(t)
			go func() {
				mux, err := newGreeted(port)
				if err != nil {
					return
				}
				if st, err := mux.AcceptStream(); err == nil {
					_, _ = io.WriteString(st, tt.says+"\n")
					_ = st.Close()
					_, _ = io.Copy(io.Discard, st)
				}
			}()
			s, err := Connect(t.Context(), host)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Setup(t.Context(), Setup{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %.100q, want one that says %q", err, tt.want)
			}
		})
	}
}

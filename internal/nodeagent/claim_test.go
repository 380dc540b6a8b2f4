package nodeagent

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseClaim(t *testing.T) {
	tests := map[string]struct {
		text string
		want Claim // zero if an error is expected
	}{
		"a claim":                    {"1.4294967297", Claim{Device: 1, Number: 4294967297}},
		"the largest":                {"65535.18446744073709551615", Claim{Device: 65535, Number: math.MaxUint64}},
		"no number":                  {"1", Claim{}},
		"an empty number":            {"1.", Claim{}},
		"number zero is nobody's":    {"1.0", Claim{}},
		"a device below zero":        {"-1.5", Claim{}},
		"something behind":           {"1.5x", Claim{}},
		"a device beyond all bounds": {"65536.5", Claim{}},
		"nothing":                    {"", Claim{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseClaim(tt.text)
			if got != tt.want || (err == nil) != (tt.want != Claim{}) {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
			if err == nil && got.String() != tt.text {
				t.Errorf("written again it is %s", got)
			}
		})
	}
}

func TestClaimWaitsAndLives(t *testing.T) {
	ended := make(chan error, 1)
	path, asked := serve(t, Reply{}, func(c *Conn) {
		c.WriteJSON(ClaimMessage{Waiting: true})
		c.WriteJSON(ClaimMessage{Claim: &Claim{Device: 1, Number: 7}})
		_, err := c.Read(make([]byte, 1))
		ended <- err
	})
	claimant, err := dialed(t, path).Claim(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Request{Op: OpClaim, NoWait: true}, <-asked); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
	if m, err := claimant.Next(t.Context()); err != nil || !m.Waiting {
		t.Errorf("first message: %+v, %v", m, err)
	}
	if m, err := claimant.Next(t.Context()); err != nil || m.Claim == nil || *m.Claim != (Claim{Device: 1, Number: 7}) {
		t.Errorf("second message: %+v, %v", m, err)
	}
	claimant.Close()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the agent sees %v", err)
	}
}

func TestClaimThatIsRefused(t *testing.T) {
	path, _ := serve(t, Reply{}, func(c *Conn) { c.WriteJSON(ClaimMessage{Error: "the VMs of job 7 are ending"}) })
	claimant, err := dialed(t, path).Claim(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	var refused *refusedError
	if _, err := claimant.Next(t.Context()); !errors.As(err, &refused) || err.Error() != "the VMs of job 7 are ending" {
		t.Errorf("error = %v", err)
	}
	if _, err := claimant.Next(t.Context()); err == nil || errors.As(err, &refused) {
		t.Errorf("after the end: %v", err)
	}
}

func TestClaimEndsWithItsContext(t *testing.T) {
	gone := make(chan struct{})
	path, _ := serve(t, Reply{}, func(c *Conn) { io.Copy(io.Discard, c); close(gone) })
	ctx, cancel := context.WithCancelCause(context.Background())
	claimant, err := dialed(t, path).Claim(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the run has ended")
	go cancel(why)
	if _, err := claimant.Next(ctx); !errors.Is(err, why) {
		t.Errorf("error = %v, want %v", err, why)
	}
	<-gone
}

package sshlogin

import "testing"

func TestShellQuote(t *testing.T) {
	if got, want := shellQuote(`/a b/it's`), `'/a b/it'\''s'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

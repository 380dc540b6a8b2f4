package controller

import (
	"errors"
	"io"
	"slices"
	"testing"
)

// A daemon plays syslog.
type daemon struct{ sentences []string }

func (d *daemon) Write(p []byte) (int, error) {
	d.sentences = append(d.sentences, string(p))
	return len(p), nil
}

func (*daemon) Close() error { return nil }

func TestSyslog(t *testing.T) {
	tests := map[string]struct {
		err  error
		want []string
	}{
		"syslog hears it":       {nil, []string{"a node is silent"}},
		"a host without syslog": {errors.New("Unix syslog delivery error"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var d daemon
			var printed []string
			warn := toSyslog(func(s string) { printed = append(printed, s) }, func() (io.WriteCloser, error) { return &d, tt.err })
			warn("a node is silent")
			if !slices.Equal(d.sentences, tt.want) || !slices.Equal(printed, []string{"a node is silent"}) {
				t.Errorf("syslog has %q, stderr %q", d.sentences, printed)
			}
		})
	}
}

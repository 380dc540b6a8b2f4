package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
)

func TestKeyReaderEndsWithItsKey(t *testing.T) {
	left := false
	r := &keyReader{in: strings.NewReader("ls\r\x1dnever"), leave: func() { left = true }}
	text, err := io.ReadAll(r)
	if err != nil || string(text) != "ls\r" || !left {
		t.Errorf("%q, %v, left %v", text, err, left)
	}
}

func TestExitCode(t *testing.T) {
	tests := map[string]struct {
		err  error
		want int
	}{
		"all well":               {nil, 0},
		"an error":               {errors.New("x"), 1},
		"a program's own":        {jobvms.ExitStatus(7), 7},
		"a usage error":          {cli.Usagef("x"), 2},
		"an error beside others": {errors.Join(errors.New("x"), cli.Usagef("y")), 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(tt.err); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

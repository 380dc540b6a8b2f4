package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/fabric/ledger"
)

func TestSum(t *testing.T) {
	var in, out strings.Builder
	for i := 100; i > 0; i-- {
		in.WriteString("0.0" + strings.Repeat("0", 2) + "1\n")
	}
	in.WriteString("0.5\n")
	if err := sum(strings.NewReader(in.String()), &out); err != nil || out.String() != "101 jobs: median 0.1 ms, 99 of 100 below 0.1 ms, longest 500.0 ms\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := sum(strings.NewReader(""), &out); err == nil {
		t.Error("no times are summed up")
	}
}

func TestFill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if err := fill(path, 3); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if entries, err := l.Entries(); err != nil || len(entries) != 3 || entries[2].State != ledger.Reserved {
		t.Errorf("%+v, %v", entries, err)
	}
}

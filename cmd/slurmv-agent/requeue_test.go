package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestParseRequeue(t *testing.T) {
	tests := map[string]struct {
		fields []string
		want   jobRecord
		bad    bool
	}{
		"a batch job that may be requeued": {[]string{"1", "1", "2", "RUNNING"}, jobRecord{batch: true, requeue: true, restarts: 2}, false},
		"one that waits":                   {[]string{"1", "1", "0", "PENDING"}, jobRecord{batch: true, requeue: true, pending: true}, false},
		"one of salloc":                    {[]string{"0", "0", "0", "RUNNING"}, jobRecord{}, false},
		"too little":                       {nil, jobRecord{}, true},
		"a count that is none":             {[]string{"1", "1", "N/A", "RUNNING"}, jobRecord{}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseRequeue(tt.fields)
			if got != tt.want || (err != nil) != tt.bad {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestWithNode(t *testing.T) {
	for list, want := range map[string]string{"": "n2", "n1": "n1,n2", "n[3-4]": "n[3-4],n2", "n1,n2": "n1,n2"} {
		if got := withNode(list, "n2"); got != want {
			t.Errorf("withNode(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestLeaveCgroups(t *testing.T) {
	for name, files := range map[string][]string{
		"version 1": {"cpuset/cgroup.procs", "memory/cgroup.procs"},
		"version 2": {"cgroup.procs"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, file := range files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := leaveCgroups(root); err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if text, _ := os.ReadFile(filepath.Join(root, file)); string(text) != "0" {
					t.Errorf("%s has %q, want 0", file, text)
				}
			}
		})
	}
}

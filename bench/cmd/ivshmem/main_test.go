package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = `slurm-v: 2 VMs ready in 9.1 s
  bytes   shm us  shm MB/s   tcp us  tcp MB/s
      8     1.50       5.3    300.0       0.0
   8192     6.00    1365.3    420.0      19.5
1048576   600.00    1747.6  40000.0      26.2
`

func TestReport(t *testing.T) {
	out := t.TempDir()
	if err := run(strings.NewReader(printed), out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "ivshmem.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Messages of 8 bytes take **1.50 µs** over shared memory and **300 µs** over TCP: 200 times as long.",
		"| 8192 | 6.00 | 420.0 | 70.0 | 1365.3 | 19.5 |\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the report:\n%s", want, text)
		}
	}
	if svg, err := os.ReadFile(filepath.Join(out, "ivshmem.svg")); err != nil || !strings.Contains(string(svg), ">IVShmem<") {
		t.Errorf("the picture has no legend: %v", err)
	}
}

func TestAJobWithoutMeasurementsIsAnError(t *testing.T) {
	if err := run(strings.NewReader("slurm-v: the VMs could not be started\n"), t.TempDir()); err == nil {
		t.Error("a report was made of it")
	}
}

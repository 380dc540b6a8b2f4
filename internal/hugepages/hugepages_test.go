package hugepages

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

const small, large = 2 << 10, 1 << 20 // KiB

func TestRead(t *testing.T) {
	sysfs := t.TempDir()
	for file, text := range map[string]string{
		"kernel/mm/hugepages/hugepages-2048kB/free_hugepages":                     "100\n",
		"kernel/mm/hugepages/hugepages-2048kB/resv_hugepages":                     "30\n",
		"kernel/mm/hugepages/hugepages-1048576kB/free_hugepages":                  "2\n",
		"kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages":                  "3\n", // read at another moment
		"devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages":     "60\n",
		"devices/system/node/node10/hugepages/hugepages-2048kB/free_hugepages":    "40\n",
		"devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages":  "2\n",
		"devices/system/node/node10/hugepages/hugepages-1048576kB/free_hugepages": "\n",
	} {
		filetest.Write(t, filepath.Join(sysfs, file), text)
	}
	want := Free{{small, Any}: 70, {large, Any}: 0, {small, 0}: 60, {small, 10}: 40, {large, 0}: 2, {large, 10}: 0}
	if diff := cmp.Diff(want, Read(sysfs), cmp.AllowUnexported(pool{})); diff != "" {
		t.Errorf("free pages differ (-want +got):\n%s", diff)
	}
	if got := Read(t.TempDir()); len(got) != 0 {
		t.Errorf("a kernel without huge pages has %v", got)
	}
}

func TestFit(t *testing.T) {
	free := Free{{small, Any}: 100, {small, 0}: 60, {small, 1}: 40, {large, Any}: 1, {large, 0}: 1}
	here := func(pages uint64) []Need { return []Need{{small, 0, pages}} }
	anywhere := func(pages uint64) []Need { return []Need{{small, Any, pages}} }
	tests := map[string]struct {
		promised, needs []Need
		want            string
	}{
		"all that a node has":       {nil, here(60), ""},
		"one more than a node has":  {nil, here(61), "need 61 pages of 2M on NUMA node 0, 60 are free, 0 of them promised to other jobs"},
		"all that nodes have":       {nil, anywhere(100), ""},
		"one more than nodes have":  {nil, anywhere(101), "need 101 pages of 2M, 100 are free, 0 of them promised to other jobs"},
		"beside a promise":          {here(20), here(40), ""},
		"of what is promised":       {here(20), here(41), "need 41 pages of 2M on NUMA node 0, 60 are free, 20 of them promised to other jobs"},
		"promised elsewhere":        {[]Need{{small, 1, 40}}, here(60), ""},
		"promised on some node":     {anywhere(60), here(41), "need 41 pages of 2M, 100 are free, 60 of them promised to other jobs"},
		"promised twice":            {append(here(20), anywhere(20)...), anywhere(61), "need 61 pages of 2M, 100 are free, 40 of them promised to other jobs"},
		"two VMs of a job":          {nil, append(here(40), here(40)...), "need 80 pages of 2M on NUMA node 0, 60 are free, 0 of them promised to other jobs"},
		"a VM on two nodes":         {nil, []Need{{small, 0, 60}, {small, 1, 40}}, ""},
		"a VM on two nodes, at one": {nil, []Need{{small, 0, 40}, {small, 1, 41}}, "need 41 pages of 2M on NUMA node 1, 40 are free, 0 of them promised to other jobs"},
		"of another size":           {here(60), []Need{{large, 0, 1}}, ""},
		"too many of another size":  {nil, []Need{{large, 0, 2}}, "need 2 pages of 1G on NUMA node 0, 1 are free, 0 of them promised to other jobs"},
		"on a node that has none":   {nil, []Need{{large, 1, 1}}, "need 1 pages of 1G on NUMA node 1, 0 are free, 0 of them promised to other jobs"},
		"pages that others took":    {here(80), here(1), "need 1 pages of 2M on NUMA node 0, 60 are free, 60 of them promised to other jobs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Fit(free, tt.promised, tt.needs)
			if (err == nil) != (tt.want == "") || err != nil && (err.Error() != tt.want || !errors.Is(err, ErrShort)) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

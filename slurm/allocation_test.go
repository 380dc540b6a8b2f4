package slurm

import (
	"errors"
	"testing"
)

func TestAllocationOn(t *testing.T) {
	lists := map[string][]string{"n1": {"n1"}, "n2": {"n2"}, "n[1-2]": {"n1", "n2"}, "n[2-3]": {"n2", "n3"}}
	expand := func(list string) ([]string, error) {
		if names, known := lists[list]; known {
			return names, nil
		}
		return nil, errors.New("no list")
	}
	const job = "JobId=9 JobName=x UserId=bob(6002) JOB_GRES=(null)   "
	tests := map[string]struct {
		text string
		cpus int
		mib  int64 // -1 if an error is expected
	}{
		"one group of nodes":             {job + "Nodes=n[1-2] CPU_IDs=0-1 Mem=1000 GRES= MinCPUsNode=2", 2, 1000},
		"several groups":                 {job + "Nodes=n1 CPU_IDs=0-7 Mem=8000 GRES=   Nodes=n2 CPU_IDs=0-1,4,6-7 Mem=500 GRES= Min", 5, 500},
		"memory that Slurm leaves alone": {job + "Nodes=n2 CPU_IDs=3 Mem=0 GRES=", 1, 0},
		"another node":                   {job + "Nodes=n1 CPU_IDs=3 Mem=0 GRES=", 0, -1},
		"a name that claims more": {"JobId=9 JobName=Nodes=n2 CPU_IDs=0-127 Mem=999999 UserId=bob(6002) " +
			"Nodes=n[1-2] CPU_IDs=0-1 Mem=1000 GRES=", 0, -1},
		"two groups with the node":         {job + "Nodes=n[1-2] CPU_IDs=0 Mem=1 GRES= Nodes=n[2-3] CPU_IDs=0 Mem=1 GRES=", 0, -1},
		"nodes that are no list":           {job + "Nodes=--help CPU_IDs=0 Mem=1 GRES=", 0, -1},
		"no CPUs":                          {job + "Nodes=n2 CPU_IDs= Mem=1 GRES=", 0, -1},
		"CPUs that are no list":            {job + "Nodes=n2 CPU_IDs=3-1 Mem=1 GRES=", 0, -1},
		"details that Slurm does not show": {job, 0, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := allocationOn(tt.text, "n2", expand)
			if tt.mib < 0 {
				if err == nil {
					t.Errorf("%+v; want an error", got)
				}
				return
			}
			if want := (Allocation{CPUs: tt.cpus, MiB: tt.mib}); err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestCountGRES(t *testing.T) {
	tests := map[string]struct {
		list string
		vf   uint32
	}{
		"none":                          {"", 0},
		"others":                        {"gpu:2(IDX:0-1),vfbw(CNT:9)", 0},
		"a count":                       {"vf(CNT:2)", 2},
		"a plain count":                 {"gpu:1,vf:3", 3},
		"devices":                       {"vf:2(IDX:0,3),gpu:1(IDX:0)", 2},
		"two types of them":             {"vf:mlx5:2(IDX:0-1),vf:igb:1(IDX:4)", 3},
		"a type by count":               {"vf:mlx5(CNT:4)", 4},
		"a count that is none":          {"vf(CNT:many)", 0},
		"a number that says two things": {"vf:2(CNT:3)", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := countGRES(tt.list, "vf"); got != tt.vf {
				t.Errorf("%d VFs, want %d", got, tt.vf)
			}
		})
	}
}

func TestAllocationHasGRES(t *testing.T) {
	const text = "JobId=9   Nodes=n1 CPU_IDs=0-1 Mem=1000 GRES=gpu:1(IDX:0),vf(CNT:2),vfbw(CNT:3000)   MinCPUsNode=2"
	got, err := allocationOn(text, "n1", func(list string) ([]string, error) { return []string{list}, nil })
	if err != nil || got.GRES("vf") != 2 || got.GRES("vfbw") != 3000 || got.GRES("gpu") != 1 || got.GRES("fpga") != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

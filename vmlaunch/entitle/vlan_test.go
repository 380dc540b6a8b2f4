package entitle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/slurm"
)

func TestEarlierOn(t *testing.T) {
	vlan := func(job uint32) uint16 { return uint16(2000 + job%10) }
	const mine = "17 2026-11-20T10:00:00 gres:vf:2,gres:vfbw:1000\n"
	tests := map[string]struct {
		others string
		want   uint32 // 0 for none
	}{
		"alone":                              {"", 0},
		"others have other VLANs":            {"16 2026-11-20T09:00:00 gres:vf:1\n", 0},
		"an earlier job has it":              {"7 2026-11-20T09:00:00 gres:vf:1\n", 7},
		"an earlier job without VFs":         {"7 2026-11-20T09:00:00 gres:gpu:1\n8 2026-11-20T09:00:00 N/A\n", 0},
		"an older number that began later":   {"7 2026-11-20T11:00:00 gres:vf:1\n", 0},
		"a newer number that began earlier":  {"27 2026-11-20T09:00:00 gres/vf:1\n", 27},
		"at the same time, the lower number": {"7 2026-11-20T10:00:00 gres:vf:1\n", 7},
		"and the higher one goes on":         {"27 2026-11-20T10:00:00 gres:vf:1\n", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := earlierOn(jobs(tt.others+mine), 17, vlan)
			if got != tt.want || found != (tt.want != 0) {
				t.Errorf("job %d, %v; want %d", got, found, tt.want)
			}
		})
	}
}

// jobs are written as "JOB START GRES" lines.
func jobs(text string) (all []slurm.ActiveJob) {
	for line := range strings.Lines(text) {
		var j slurm.ActiveJob
		if _, err := fmt.Sscan(line, &j.Job, &j.Start, &j.GRES); err != nil {
			panic(err)
		}
		all = append(all, j)
	}
	return all
}

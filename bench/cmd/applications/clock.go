package main

import (
	"fmt"
	"regexp"
	"strconv"
)

// interval is how long the VMs' clocks are compared with the node's, in seconds.
const interval = 10

// clockScript has every VM of a job print its uptime twice: when a line arrives on its
// input, and when the input ends.
const clockScript = `(sleep 8; echo go; sleep %d) | slurm-v-run -Q -n %d --ntasks-per-node=%d sh -c '
	read go; read begin rest < /proc/uptime; cat > /dev/null; read end rest < /proc/uptime; echo "$SLURMV_VM $begin $end"'`

var uptimes = regexp.MustCompile(`(?m)^(vm\d+) (\S+) (\S+)$`)

// checkClocks refuses VMs whose clock is much faster or slower than the node's: a guest
// kernel that got no CPU while it calibrated its time-stamp counter can be wrong by any
// factor. Small differences prove nothing, because on a busy machine lines reach the VM
// late.
func checkClocks(s *session) error {
	vms := s.nodes * s.vmsPerNode
	out, err := s.run(fmt.Sprintf(clockScript, interval, vms, s.vmsPerNode))
	if err != nil {
		return err
	}
	found := uptimes.FindAllStringSubmatch(out, -1)
	if len(found) != vms {
		return fmt.Errorf("%s: %d of %d VMs tell the time:\n%s", s.name, len(found), vms, out)
	}
	for _, m := range found {
		begin, _ := strconv.ParseFloat(m[2], 64)
		end, _ := strconv.ParseFloat(m[3], 64)
		if speed := (end - begin) / interval; speed < 0.8 || speed > 1.25 {
			return fmt.Errorf("%s: the clock of %s goes %.2f times as fast as the node's: "+
				"its kernel found no quiet moment to set it, or the machine is too busy to tell; "+
				"measure again when it has less to do", s.name, m[1], speed)
		}
	}
	return nil
}

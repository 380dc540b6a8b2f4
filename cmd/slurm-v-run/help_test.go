package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/slurm-v/slurm-v/vmstep"
)

// The help says for how many ranks of a node a device is large enough, and no larger than it must be.
func TestHelpSaysHowManyRanksADeviceServes(t *testing.T) {
	said := regexp.MustCompile(`(\d+)M(?: is enough)? for\s+(\d+)`).FindAllStringSubmatch(help, -1)
	if len(said) != 3 {
		t.Fatalf("it says %q", said)
	}
	for _, words := range said {
		mib, _ := strconv.ParseInt(words[1], 10, 64)
		ranks, _ := strconv.Atoi(words[2])
		for more, enough := range map[int]bool{0: true, 1: false} {
			if err := (vmstep.MPIMemory{Size: mib << 20, Ranks: ranks + more}).Check(nil); (err == nil) != enough {
				t.Errorf("%d MiB for %d ranks: %v", mib, ranks+more, err)
			}
		}
	}
}

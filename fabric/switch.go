package fabric

import (
	"fmt"

	"github.com/slurm-v/slurm-v/slurm"
)

// SwitchAdvice says what to do about the error of [ApartFromSwitch].
const SwitchAdvice = "set vnis= in SwitchParameters of slurm.conf, or the pool in slurmv.toml, so that they are apart"

// ApartFromSwitch refuses pools with VNIs that Slurm's own plugin for Slingshot gives to steps.
func ApartFromSwitch(pools []Pool, conf slurm.Conf) error {
	own, used := conf.SwitchVNIs()
	if !used {
		return nil
	}
	for _, p := range pools {
		for _, r := range p.Tags {
			if p.Kind == VNI && uint16(r.First) <= own.Last && own.First <= uint16(r.Last) {
				return fmt.Errorf("switch/hpe_slingshot gives steps the VNIs %d-%d, and pool %s has %d-%d", own.First, own.Last, p.Name, r.First, r.Last)
			}
		}
	}
	return nil
}

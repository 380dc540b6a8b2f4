package slurm

import (
	"context"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// slingshotSwitch is Slurm's own plugin for Slingshot, in SwitchType.
const slingshotSwitch = "switch/hpe_slingshot"

// HasSlingshotSwitch reports whether Slurm's own plugin for Slingshot is in use.
func (c Conf) HasSlingshotSwitch() bool { return c["SwitchType"] == slingshotSwitch }

// SwitchVNIs returns the VNIs that Slurm's own plugin for Slingshot gives to steps, if it is in use:
// vnis= of SwitchParameters, or its default (setup_nic.c and switch_hpe_slingshot.h of Slurm).
func (c Conf) SwitchVNIs() (own config.TagRange, used bool) {
	if !c.HasSlingshotSwitch() {
		return own, false
	}
	own = config.TagRange{First: 1024, Last: 65535}
	for _, word := range c.List("SwitchParameters") {
		text, found := strings.CutPrefix(word, "vnis=")
		if tags, err := config.ParseTags(text); found && err == nil && len(tags) > 0 {
			own = config.TagRange{First: tags[0].First, Last: tags[len(tags)-1].Last}
		}
	}
	return own, true
}

// SwitchConf returns the settings of Slurm's plugin for the network. Jobs wait for the answer, so it
// asks slurmctld only if slurm.conf may name the plugin for Slingshot.
func (c Client) SwitchConf(ctx context.Context) (Conf, error) {
	if text, found := confText(c.Env); found && !mayHaveSlingshot(text) {
		return Conf{}, nil
	}
	return c.Conf(ctx)
}

// mayHaveSlingshot reports whether a slurm.conf names the plugin, or includes a file that may.
func mayHaveSlingshot(text string) bool {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.ToLower(line), "#")
		if strings.HasPrefix(strings.TrimSpace(line), "include") || strings.Contains(line, "slingshot") {
			return true
		}
	}
	return false
}

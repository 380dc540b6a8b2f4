package tags

import (
	"context"
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// clearVFs takes the tags off VFs that no lease knows, and returns a phrase for each. It does not ask
// what runs: a job that runs has leased each VF before that has a tag.
func clearVFs(ctx context.Context, cfg config.Config, name string, dryRun bool) (done []string, err error) {
	pools := fabric.Pools(cfg.Fabric)
	if !slices.ContainsFunc(pools, func(p fabric.Pool) bool { return p.Kind != fabric.VNI }) {
		return nil, nil
	}
	pool, err := vfpool.Open(cfg, name)
	if err != nil {
		return nil, err
	}
	cleared, err := pool.ClearStrays(ctx, func(s device.Settings) bool { return tagOf(s, pools) != "" }, dryRun)
	for _, s := range cleared {
		what := fmt.Sprintf("cleared VF %d of %s, which had %s", s.VF.Index, s.VF.PF, tagOf(s.Settings, pools))
		if dryRun {
			what = "would have " + what
		}
		done = append(done, what)
	}
	return done, err
}

// tagOf returns what settings have that only jobs have, "" for nothing. The subnet manager knows the
// P_Keys of a VF by its GUID.
func tagOf(s device.Settings, pools []fabric.Pool) string {
	for _, p := range pools {
		if p.Kind == fabric.VLAN && s.VLAN != 0 && p.Has(fabric.Tag(s.VLAN)) {
			return "VLAN " + fabric.Tag(s.VLAN).Text(fabric.VLAN)
		}
		if guid, err := fabric.ParseGUID(s.PortGUID); p.Kind == fabric.PKey && err == nil && guid.OfVF() {
			return "the GUID " + guid.String()
		}
	}
	return ""
}

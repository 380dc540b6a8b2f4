package jobspec

import (
	"errors"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
)

// FabricOption is the one option that jobs without VMs can have, too.
const FabricOption = "vm-fabric"

func parseFabric(s *Spec, value string, _ config.Config) error {
	choice, err := fabric.ParseChoice(value)
	s.Fabric = choice.String()
	return err
}

// checkFabric runs after the check of the VFs, because their number decides about tags.
func checkFabric(s Spec, cfg config.Config) error {
	_, err := s.Wish(cfg)
	return err
}

// Wish returns what the job wants of the fabric. The error is about a Spec that Validate
// refuses.
func (s Spec) Wish(cfg config.Config) (fabric.Wish, error) {
	vms, vfs := s.VMsPerNode, len(s.SRIOV.VFs)
	if s.Fabric == "" {
		return fabric.WishOf(cfg.Fabric, vms, vfs), nil
	}
	choice, err := fabric.ParseChoice(s.Fabric)
	if err != nil {
		return fabric.Wish{}, err
	}
	if choice.String() != s.Fabric {
		return fabric.Wish{}, errors.New(config.Quote(s.Fabric) + " is not as Slurm-V writes it")
	}
	return choice.Wish(cfg.Fabric, vms, vfs)
}

// WithoutVMs reports whether these are the options of a job without VMs: --vm-fabric alone.
func WithoutVMs(values map[string]string) bool {
	_, given := values[FabricOption]
	return given && len(values) == 1
}

// ParseWithoutVMs returns what a job without VMs wants of the fabric, of option values for
// which [WithoutVMs] is true. The error is a [*ValueError].
func ParseWithoutVMs(values map[string]string, cfg config.Config) (fabric.Wish, error) {
	var spec Spec
	for _, option := range Options {
		if option.Name != FabricOption {
			continue
		}
		if err := option.read(&spec, values, func(string) string { return "" }, cfg); err != nil {
			return fabric.Wish{}, err
		}
	}
	return spec.Wish(cfg)
}

// A License is how many tags of a kind Slurm is to count for a job.
type License struct {
	Kind  fabric.Kind
	Count int
}

// LicensesOf returns what Slurm is to count for a wish; nothing at a site where it does not
// count tags. Such a site has one pool of a kind, for all partitions.
func LicensesOf(w fabric.Wish, cfg config.Config) (licenses []License) {
	if !cfg.Fabric.Licenses {
		return nil
	}
	for _, p := range fabric.Pools(cfg.Fabric) {
		if n, _ := w.Count(p); n > 0 {
			licenses = append(licenses, License{p.Kind, n})
		}
	}
	return licenses
}

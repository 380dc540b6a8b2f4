package jobspec

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

func parseIVShmem(s *Spec, value string, cfg config.Config) error {
	number, sizeText, sized := strings.Cut(value, ":")
	n, err := parseNumber(number, 0, cfg.Limits.IVShmemPerVM)
	if err != nil {
		return err
	}
	size := cfg.Defaults.IVShmemSize
	if sized {
		if size, err = config.ParseSize(sizeText); err != nil {
			return err
		}
	}
	s.IVShmem = IVShmem{Devices: n, SizeMiB: size.MiB()}
	if n == 0 { // overrides a default from the environment
		s.IVShmem = IVShmem{}
	}
	return nil
}

// AllMiB is the memory of all devices, in MiB.
func (i IVShmem) AllMiB() int64 { return int64(i.Devices) * i.SizeMiB }

func checkIVShmem(s Spec, cfg config.Config) error {
	size := config.Size(s.IVShmem.SizeMiB)
	if err := checkNumber(s.IVShmem.Devices, 0, cfg.Limits.IVShmemPerVM); err != nil {
		return err
	}
	if s.IVShmem.Devices == 0 {
		if size != 0 {
			return fmt.Errorf("%s of shared memory has no device", size)
		}
		return nil
	}
	if err := checkSize(size.MiB(), 1, cfg.Limits.IVShmemSize); err != nil {
		return err
	}
	if !size.PowerOfTwo() {
		above := config.Size(1) << bits.Len64(uint64(size))
		return fmt.Errorf("%s is not a power of two; use %s or %s", size, above/2, above)
	}
	if all := config.Size(s.IVShmem.AllMiB()); all > cfg.Limits.IVShmemPerJob {
		return fmt.Errorf("%d devices of %s are %s; a job may have %s on each node", s.IVShmem.Devices, size, all, cfg.Limits.IVShmemPerJob)
	}
	return nil
}

package jobspec

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"regexp"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// maxSRIOV bounds the value of --sriov in bytes.
const maxSRIOV = 1024

// vfSettings is what may follow a number of VFs; what it means is for the
// package that sets the VFs up.
var vfSettings = regexp.MustCompile(`^[A-Za-z0-9=,.:_/-]+$`)

const sriovForm = "use a number of VFs, as in 2, with settings after a colon, as in 1:min=10g+2:max=5g"

func parseSRIOVOption(s *Spec, value string, _ config.Config) (err error) {
	s.SRIOV, err = parseSRIOV(value)
	return err
}

// parseSRIOV counts the VFs of a value: N, N:SETTINGS, such parts joined with +,
// or a JSON list with one object per VF.
func parseSRIOV(value string) (SRIOV, error) {
	if len(value) > maxSRIOV {
		return SRIOV{}, fmt.Errorf("%s is %d bytes long; at most %d are allowed", config.Quote(value), len(value), maxSRIOV)
	}
	if strings.HasPrefix(value, "[") {
		return parseSRIOVList(value)
	}
	if value == "0" { // overrides a default from the environment
		return SRIOV{}, nil
	}
	var sum SRIOV
	for part := range strings.SplitSeq(value, "+") {
		number, settings, any := strings.Cut(part, ":")
		n, ok := wholeNumber(number)
		if !ok || n == 0 || any && !vfSettings.MatchString(settings) {
			return SRIOV{}, fmt.Errorf("%s is not allowed; %s", config.Quote(part), sriovForm)
		}
		sum.VFs += n
		if any {
			sum.Text = value
		}
	}
	return sum, nil
}

func parseSRIOVList(value string) (SRIOV, error) {
	var vfs []map[string]any
	if err := json.Unmarshal([]byte(value), &vfs); err != nil {
		return SRIOV{}, fmt.Errorf("%s is not a JSON list of objects (%w); %s", config.Quote(value), err, sriovForm)
	}
	for _, vf := range vfs {
		if vf == nil {
			return SRIOV{}, fmt.Errorf("%s has a null where an object describes a VF; use {} for one without settings", config.Quote(value))
		}
	}
	if len(vfs) == 0 {
		return SRIOV{}, fmt.Errorf("%s is an empty list; use 0 for no VFs", config.Quote(value))
	}
	return SRIOV{VFs: len(vfs), Text: value}, nil
}

func checkSRIOV(s Spec, cfg config.Config) error {
	if s.SRIOV.Text != "" {
		if err := config.CheckText(s.SRIOV.Text); err != nil {
			return err
		}
		if counted, err := parseSRIOV(s.SRIOV.Text); err != nil {
			return err
		} else if counted != s.SRIOV {
			return fmt.Errorf("%s does not give %d VFs", config.Quote(s.SRIOV.Text), s.SRIOV.VFs)
		}
	}
	if s.SRIOV.VFs < 0 || s.SRIOV.VFs > cfg.Limits.VFPerVM {
		return fmt.Errorf("%d VFs per VM are not allowed; use 0 to %d", s.SRIOV.VFs, cfg.Limits.VFPerVM)
	}
	return nil
}

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
	return nil
}

package jobspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// maxSRIOV bounds the value of --sriov in bytes.
const maxSRIOV = 1024

const sriovForm = "use a number of VFs, as in 2, with settings after a colon, as in 1:min=10g+2:max=5g"

// jsonForm shows single quotes, because a shell, or sbatch in a script, would remove the
// double quotes of unquoted JSON.
const jsonForm = `write it in single quotes, as in --sriov='[{"min_tx_rate":15000,"max_tx_rate":20000},{}]'`

// parseSRIOV reads a value: N, N:SETTINGS, parts of these forms joined with +, or
// ConRDMA's JSON, a list with one object per VF.
func parseSRIOV(s *Spec, value string, cfg config.Config) (err error) {
	s.SRIOV.VFs = nil
	switch {
	case len(value) > maxSRIOV:
		return fmt.Errorf("%s is %d bytes long; at most %d are allowed", config.Quote(value), len(value), maxSRIOV)
	case strings.HasPrefix(value, "["):
		s.SRIOV.VFs, err = parseVFList(value)
	case value != "0": // "0" overrides a default from the environment
		s.SRIOV.VFs, err = parseVFSum(value, cfg.Limits.VFPerVM)
	}
	return err
}

// parseVFSum reads the parts of a value. Its result has at most `most` VFs.
func parseVFSum(value string, most int) (vfs []VF, err error) {
	sum := 0
	for part := range strings.SplitSeq(value, "+") {
		number, settings, set := strings.Cut(part, ":")
		n, ok := wholeNumber(number)
		if !ok || n == 0 {
			return nil, fmt.Errorf("%s is not allowed; %s", config.Quote(part), sriovForm)
		}
		var vf VF
		if set {
			if vf, err = parseVFSettings(settings); err != nil {
				return nil, fmt.Errorf("%s: %w", config.Quote(part), err)
			}
		}
		if sum += n; sum <= most {
			vfs = append(vfs, slices.Repeat([]VF{vf}, n)...)
		}
	}
	return vfs, checkVFNumber(sum, most)
}

func checkVFNumber(n, most int) error {
	if n > most {
		return fmt.Errorf("%d VFs per VM are not allowed; use 0 to %d", n, most)
	}
	return nil
}

// vfSettings are the settings that may follow the number of VFs, by name.
var vfSettings = map[string]func(vf *VF, value string) error{
	"min": func(vf *VF, value string) error { return parseRate(&vf.MinMbps, value) },
	"max": func(vf *VF, value string) error { return parseRate(&vf.MaxMbps, value) },
	"pf": func(vf *VF, value string) error {
		vf.PF = value
		return config.CheckInterface(value)
	},
	"numa": func(vf *VF, value string) (err error) {
		vf.NUMA, err = parseNUMA(value)
		return err
	},
	"spread": func(vf *VF, _ string) error {
		vf.Spread = true
		return nil
	},
}

// parseVFSettings reads settings such as "min=10g,max=40g,numa=any,spread".
func parseVFSettings(settings string) (vf VF, err error) {
	seen := map[string]bool{}
	for setting := range strings.SplitSeq(settings, ",") {
		name, value, hasValue := strings.Cut(setting, "=")
		parse, known := vfSettings[name]
		switch {
		case !known:
			return VF{}, fmt.Errorf("%s is not a setting; use min=RATE, max=RATE, pf=NAME, numa=WORD or spread", config.Quote(setting))
		case seen[name]:
			return VF{}, fmt.Errorf("%s is given twice; join VFs with different settings with +", name)
		case hasValue == (name == "spread"):
			return VF{}, fmt.Errorf("%s is not allowed; %s", config.Quote(setting), valueForm(name))
		}
		if err := parse(&vf, value); err != nil {
			return VF{}, fmt.Errorf("%s: %w", name, err)
		}
		seen[name] = true
	}
	return vf, vf.check()
}

func valueForm(setting string) string {
	if setting == "spread" {
		return "spread has no value"
	}
	return setting + " needs a value, as in --sriov=1:" + setting + "=" + map[string]string{
		"min": "10g", "max": "10g", "pf": "ens1f0", "numa": "require",
	}[setting]
}

func parseRate(mbps *uint32, value string) error {
	rate, err := config.ParseRate(value)
	*mbps = uint32(rate)
	return err
}

// parseNUMA maps both forms of NUMAPrefer to one value.
func parseNUMA(word string) (NUMA, error) {
	if word == "prefer" {
		return NUMAPrefer, nil
	}
	if word == "" {
		return "", errNUMA(word)
	}
	return NUMA(word), checkNUMA(NUMA(word))
}

func checkNUMA(numa NUMA) error {
	switch numa {
	case NUMAPrefer, NUMARequire, NUMAAny:
		return nil
	}
	return errNUMA(string(numa))
}

func errNUMA(word string) error {
	return fmt.Errorf("%s is not allowed; use prefer, require or any", config.Quote(word))
}

// parseVFList reads a list such as [{"min_tx_rate":15000,"max_tx_rate":20000},{}].
func parseVFList(value string) ([]VF, error) {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, fmt.Errorf("%s is not a JSON list of objects (%w); %s", config.Quote(value), err, jsonForm)
	}
	var vfs []VF
	for i, object := range list {
		vf, err := parseVFObject(object)
		if err != nil {
			return nil, fmt.Errorf("VF %d of the list: %w", i+1, err)
		}
		vfs = append(vfs, vf)
	}
	return vfs, nil
}

func parseVFObject(object map[string]json.RawMessage) (vf VF, err error) {
	if object == nil {
		return VF{}, fmt.Errorf("null stands where an object describes a VF; use {} for one without settings")
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		rate := map[string]*uint32{"min_tx_rate": &vf.MinMbps, "max_tx_rate": &vf.MaxMbps}[key]
		if rate == nil {
			return VF{}, fmt.Errorf("%s is not a key; use min_tx_rate and max_tx_rate, or the form 1:min=10g", config.Quote(key))
		}
		number := string(object[key])
		if strings.Trim(number, "0123456789") != "" {
			return VF{}, fmt.Errorf("%s: %s is not allowed; use a whole number of Mb/s, such as 15000", key, config.Quote(number))
		}
		if err := parseRate(rate, number); err != nil {
			return VF{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	return vf, vf.check()
}

func checkSRIOV(s Spec, cfg config.Config) error {
	if err := checkVFNumber(len(s.SRIOV.VFs), cfg.Limits.VFPerVM); err != nil {
		return err
	}
	spread := map[string]bool{}
	for _, vf := range s.SRIOV.VFs {
		if err := vf.check(); err != nil {
			return err
		}
		if vf.Spread && vf.PF != "" && spread[vf.PF] {
			return fmt.Errorf("spread puts each VF on another physical function, and pf=%s puts two on one; leave one of them out", vf.PF)
		}
		spread[vf.PF] = spread[vf.PF] || vf.Spread
	}
	return nil
}

// check returns what is wrong with a VF by itself.
func (v VF) check() error {
	least, most := config.Rate(v.MinMbps), config.Rate(v.MaxMbps)
	switch {
	case max(least, most) > config.MaxRate:
		return fmt.Errorf("%s is too high a rate; at most %s can be given", max(least, most), config.MaxRate)
	case most != 0 && least > most:
		return fmt.Errorf("the minimum of %s is above the maximum of %s; use a maximum of at least %s, or 0 for none", least, most, least)
	}
	if v.PF != "" {
		if err := config.CheckInterface(v.PF); err != nil {
			return fmt.Errorf("pf: %w", err)
		}
	}
	if err := checkNUMA(v.NUMA); err != nil {
		return fmt.Errorf("numa: %w", err)
	}
	return nil
}

package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/slurm"
)

// licences compares how many tags Slurm counts, where it does, with those of the pools. A job that
// Slurm lets start must get its tags, also while those of the last jobs cool.
func (i *inspection) licences() []Result {
	const name = "licences"
	if !i.cfg.Fabric.Licenses {
		return nil
	}
	if i.settingsErr != nil {
		return []Result{skipped(name, "Slurm's settings are not known", "")}
	}
	var seen []string
	for _, p := range fabric.Pools(i.cfg.Fabric) {
		licence, size := "slurmv_"+string(p.Kind), p.Size()
		count, found := licencesOf(i.settings, licence)
		switch {
		case !found:
			return []Result{wrong(name, fmt.Sprintf("Slurm does not count %s, of which the pool has %d", licence, size),
				fmt.Sprintf("add %s:%d to Licenses in slurm.conf, somewhat fewer than the pool has: Slurm refuses jobs that ask for an unknown licence", licence, fewer(size)))}
		case count > size || count == size && size > 1:
			return []Result{warning(name, fmt.Sprintf("Slurm counts %d %s, and the pool has %d, of which some cool", count, licence, size),
				fmt.Sprintf("set %s:%d in Licenses of slurm.conf: else jobs start that wait for a tag, or get none", licence, fewer(size)))}
		}
		seen = append(seen, fmt.Sprintf("%s:%d of %d", licence, count, size))
	}
	return []Result{ok(name, strings.Join(seen, ", "))}
}

// fewer leaves a twentieth of a pool to tags that cool.
func fewer(size int) int { return max(1, size-max(1, size/20)) }

// licencesOf returns the count of a licence in slurm.conf, where no number means 1.
func licencesOf(s slurm.Conf, licence string) (count int, found bool) {
	for _, word := range s.List("Licenses") {
		name, number, counted := strings.Cut(word, ":")
		if name != licence {
			continue
		}
		if !counted {
			return 1, true
		}
		n, err := strconv.Atoi(number)
		return n, err == nil
	}
	return 0, false
}

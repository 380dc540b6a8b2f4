package prove

import (
	"fmt"
	"math"
	"slices"
)

// A Comparison sets the values of a measurement in VMs against those on bare nodes.
type Comparison struct {
	Name string    `json:"name"`
	What string    `json:"what"`
	Unit string    `json:"unit"`
	Best string    `json:"best"` // less or more
	Bare []float64 `json:"bare"` // in the order in which they were measured
	VMs  []float64 `json:"vms"`

	BareMedian float64 `json:"bare_median"`
	VMsMedian  float64 `json:"vms_median"`

	// Percent is how much greater the median in VMs is. It is nil if the values do not
	// support a number; Verdict then says why.
	Percent *float64 `json:"percent,omitempty"`
	Verdict string   `json:"verdict"`
}

// A metric is something that is measured, with the words for more and less of it.
type metric struct {
	name, what, unit string
	best             string // less or more
	more, less       string // of it, in words
}

var metrics = []metric{
	{"compute", "integer and floating-point arithmetic on every vCPU, the slowest rank's time", "s", "less", "slower", "faster"},
	{"memory", "STREAM triad on every vCPU, all ranks together", "MB/s", "more", "more", "less"},
	{"latency", "a message of 8 bytes from the first rank to the last, one way, by TCP", "µs", "less", "longer", "shorter"},
	{"bandwidth", "messages of 1 MiB from the first rank to the last, by TCP", "MB/s", "more", "more", "less"},
	{"program", "the site's own program, from srun's start to its end", "s", "less", "slower", "faster"},
}

// compare decides what the values say. A difference counts only if it is greater than
// the range of either side's values.
func compare(m metric, bare, vms []float64, emulated bool) Comparison {
	c := Comparison{Name: m.name, What: m.what, Unit: m.unit, Best: m.best, Bare: bare, VMs: vms, BareMedian: median(bare), VMsMedian: median(vms)}
	switch {
	case len(bare) == 0 || len(vms) == 0:
		c.Verdict = "not measured on both sides"
	case emulated:
		c.Verdict = "not judged: the VMs are emulated, and this is what the emulator costs"
	case len(bare) < LeastRounds || len(vms) < LeastRounds:
		c.Verdict = fmt.Sprintf("not judged: fewer than %d rounds", LeastRounds)
	case !steady(bare) || !steady(vms):
		c.Verdict = "not judged: the greatest value is more than twice the least; measure on nodes with nothing else to do"
	default:
		c.judge(m)
	}
	return c
}

func (c *Comparison) judge(m metric) {
	difference, noise := math.Abs(c.VMsMedian-c.BareMedian), max(spread(c.Bare), spread(c.VMs))
	if difference <= noise {
		c.Verdict = fmt.Sprintf("no difference beyond the spread of %.1f %%", 100*noise/c.BareMedian)
		return
	}
	percent := 100 * (c.VMsMedian/c.BareMedian - 1)
	c.Percent, c.Verdict = &percent, fmt.Sprintf("%.1f %% %s in VMs", math.Abs(percent), m.word(percent))
}

func (m metric) word(percent float64) string {
	if percent > 0 {
		return m.more
	}
	return m.less
}

// steady reports whether the greatest value is at most twice the least.
func steady(values []float64) bool { return slices.Max(values) <= 2*slices.Min(values) }

func spread(values []float64) float64 { return slices.Max(values) - slices.Min(values) }

// median returns the middle value, or the mean of the two middle ones; 0 without values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

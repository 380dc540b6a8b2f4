package main

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/slurm-v/slurm-v/bench/stats"
)

// parts are the medians of BenchmarkNode: ms per VM, by the name of the part and the
// number of VMs.
type parts map[string]map[int]float64

var benchLine = regexp.MustCompile(`(?m)^BenchmarkNode/([a-z-]+)/vms=([0-9]+)\S*\s.*\s([0-9.]+) ms/VM`)

func readParts(file string) (parts, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]map[int][]float64{}
	for _, m := range benchLine.FindAllStringSubmatch(string(text), -1) {
		vms, _ := strconv.Atoi(m[2])
		ms, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		if all[m[1]] == nil {
			all[m[1]] = map[int][]float64{}
		}
		all[m[1]][vms] = append(all[m[1]][vms], ms)
	}
	if len(all) == 0 {
		return nil, errors.New(file + " has no measurements")
	}
	medians := parts{}
	for name, byVMs := range all {
		medians[name] = map[int]float64{}
		for vms, values := range byVMs {
			medians[name][vms] = stats.Median(values)
		}
	}
	return medians, nil
}

// counts returns the numbers of VMs, in order.
func (p parts) counts() []int {
	var counts []int
	for vms := range p["launch"] {
		counts = append(counts, vms)
	}
	slices.Sort(counts)
	return counts
}

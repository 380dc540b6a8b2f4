// Package stats summarises the rounds of a measurement.
package stats

import (
	"math"
	"slices"
)

// Median returns the middle value, or the mean of the two middle ones. Without values it
// returns 0.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Percentile returns the smallest value that is not smaller than percent of the values.
// Without values it returns 0.
func Percentile(values []float64, percent float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Package stats summarises the rounds of a measurement.
package stats

import "slices"

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

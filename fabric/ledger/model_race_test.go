//go:build !soak && race

package ledger

// The model shares nothing between goroutines, and takes ten times as long under the race detector.
const (
	modelRuns      = 200
	killOperations = 200
)

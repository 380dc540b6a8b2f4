//go:build soak

package ledger

const (
	modelRuns      = 100_000
	killOperations = 20_000
)

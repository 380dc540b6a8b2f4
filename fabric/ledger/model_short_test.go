//go:build !soak && !race

package ledger

// How often the model runs, and how many operations processes do that are killed, in every
// run of the tests. Run more with: go test -tags soak.
const (
	modelRuns      = 2000
	killOperations = 400
)

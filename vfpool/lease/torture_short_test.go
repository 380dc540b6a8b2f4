//go:build !soak

package lease

// The size of the torture in every run of the tests. Run more with: go test -tags soak.
const (
	tortureProcesses  = 8
	tortureVFs        = 24
	tortureOperations = 2000
	tortureDeath      = 30 // one of so many operations begins with a timer that kills
)

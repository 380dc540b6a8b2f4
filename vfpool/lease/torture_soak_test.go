//go:build soak

package lease

const (
	tortureProcesses  = 64
	tortureVFs        = 256
	tortureOperations = 100_000
	tortureDeath      = 60
)

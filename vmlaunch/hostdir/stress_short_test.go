//go:build !soak

package hostdir

const stressOperations, stressWorkers = 5_000, 4

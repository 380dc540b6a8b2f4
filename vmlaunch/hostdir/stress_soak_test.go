//go:build soak

package hostdir

const stressOperations, stressWorkers = 10_000_000, 16

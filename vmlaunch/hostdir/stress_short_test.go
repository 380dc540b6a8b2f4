//go:build !soak

package hostdir

const stressRuns, stressOperations, stressWorkers = 1, 5_000, 4

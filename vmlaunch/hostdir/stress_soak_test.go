//go:build soak

package hostdir

const stressRuns, stressOperations, stressWorkers = 5, 2_000_000, 16 // a run takes some 11 minutes on two CPUs

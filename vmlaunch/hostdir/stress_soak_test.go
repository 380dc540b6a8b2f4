//go:build soak

package hostdir

const stressOperations = 10_000_000

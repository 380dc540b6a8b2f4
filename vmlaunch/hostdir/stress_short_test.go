//go:build !soak

package hostdir

const stressOperations = 5_000

//go:build soak

package controller

const (
	fleetJobs = 1000
	atOnce    = 50
)

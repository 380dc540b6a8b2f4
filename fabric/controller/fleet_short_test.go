//go:build !soak

package controller

// How many jobs come and go in every run of the tests, and how many tags and licences there are. Each job
// costs some processes. Run more with: go test -tags soak.
const (
	fleetJobs = 30
	atOnce    = 8
)

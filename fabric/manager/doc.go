// Package manager reserves multicast addresses for hardware collectives of jobs with a
// Slingshot fabric manager.
//
// A job's reservation is called its session. Libfabric makes multicast trees within it, in
// the job's tasks, with the session's token (fi_cxi(7)). The controller makes the
// session when the job gets its nodes and removes it when the job has ended. A job can do
// without, so an error of [Client.Reserve] need not fail it.
//
// The controller can die between any two steps. So it compares what the fabric manager
// lists with the jobs that it knows: [Stale] are sessions to release, [Missing] are jobs
// whose session has vanished.
package manager

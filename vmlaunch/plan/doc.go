// Package plan decides what one node will do for a job, and does nothing.
//
// A [Job] is what Slurm says about the job (identity, owner, what it owns on this node)
// and what its user asked for. [New] turns it into a [Plan]: every name, address, file
// and CPU of the VMs. Deciding touches nothing, so the same job and [Hardware] give the
// same Plan.
package plan

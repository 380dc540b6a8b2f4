// Package fabric has the words for a job's own tags on the fabric: VLAN, InfiniBand P_Key
// and Slingshot VNI.
//
// A tag is a number that the network card stamps on a job's messages, so that jobs do not
// hear each other. The controller gives a job its tags when it gets its nodes, out of
// [Pool]s that the site has configured, and writes them down in a ledger (package ledger).
// The [Reservation] comes to the job's nodes sealed, in the job's own record at slurmctld
// (package letter). On each node root sets the tags on VFs (package vfpool) and makes the
// job's services on Slingshot cards (packages node and cxi). After the job, each node says
// that its tags are gone from the hardware. Only then may another job have them.
//
// This package decides, and touches nothing.
package fabric

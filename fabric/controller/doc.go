// Package controller gives jobs their tags, and takes them back, for slurmctld.
//
// A [Controller] serves one call of PrologSlurmctld ([Controller.Reserve]) or
// EpilogSlurmctld ([Controller.Release]), or of an administrator's command. It joins the
// ledger, which remembers who has which tag, with those who must hear of it: the subnet
// manager, the fabric manager, and the job's own record, from which root on the nodes reads
// the sealed reservation.
//
// The ledger comes first and knows everything that may exist elsewhere, so a call may die at
// any point. What it leaves behind, a later [Controller.Sweep] finds: jobs that have ended
// without an EpilogSlurmctld, nodes that have confirmed or rebooted, members of P_Keys and
// multicast addresses of ended jobs. When slurmctld has restarted, or another controller has
// taken over, the first call compares the ledger with the jobs' records
// ([Controller.Reconcile]): the ledger may be an old copy.
//
// The decisions (decide.go) are pure.
package controller

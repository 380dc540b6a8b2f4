// Package node sets up a job's tags on one of its nodes, and gives the node's word that
// they are gone.
//
// [Node.Up] reads the job's letter from its record at slurmctld, makes the job's CXI
// services, and writes the variables about the tags for the job's tasks. [Node.Down] undoes
// that, reads back that it is gone, and only then confirms: it adds the job to the node's
// statement, which the controller reads in the node's record. [Node.Clean] does the same
// for jobs that have ended without it.
//
// VLANs, P_Keys and GUIDs of virtual functions are not here: package vfpool sets them, from
// the reservation that Up returns. So Down asks its caller whether anything else of the job
// is on the node.
//
// Everything lies in the directory fabric of the node's state:
//
//	jobs/JOB.RESTART/journal      what the job holds, and that a confirmation is due
//	jobs/JOB.RESTART/environment  the variables for its tasks, see [Node.Up]
//	locks/JOB                     taken by the plugin while it starts Up
//	ends/JOB.RESTART              taken while services come or go
//	pending/JOB                   a job has ended of which it is not known yet which run
//	statement                     what the node has confirmed, and what slurmctld was told of it
//
// RESTART is slurmctld's count, never the plugin's.
package node

// Package entitle is what Slurm says that a job owns on this node: the trusted part of a
// [plan.Job].
//
// Two callers start an agent. Slurm's plugin says in variables which job it is ([FromPlugin]);
// its process has to be in that job's cgroup. Users without the plugin come by sudo
// ([FromSudo]): sudo says who they are, the cgroup which job they are in, and slurmctld what
// that job owns.
package entitle

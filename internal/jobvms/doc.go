// Package jobvms finds the VMs of running jobs, for people: Slurm says which jobs have VMs,
// and what only a job's nodes know is asked by a short step of that job ([Step]), whose tasks
// are slurmv-agent query.
package jobvms

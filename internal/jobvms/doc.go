// Package jobvms finds the VMs of running jobs, for people. Slurm lists the jobs with
// VMs. Details are known only to a job's nodes: a short step of the job ([Step]), whose
// tasks are slurmv-agent query, asks them.
package jobvms

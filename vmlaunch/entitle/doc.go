// Package entitle finds out what a job owns on this node, from Slurm: the trusted part of a
// [plan.Job].
//
// An agent is started in one of two ways. Slurm's plugin names the job in variables
// ([FromPlugin]), and the agent must be in that job's cgroup. Users without the plugin
// start the agent with sudo ([FromSudo]): sudo says who they are, the cgroup says which job
// they are in, and slurmctld says what that job owns.
package entitle

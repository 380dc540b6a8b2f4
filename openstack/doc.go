// Package openstack makes the VMs of a job with OpenStack: servers of nova on the nodes that
// Slurm has given the job, with ports of neutron and images of glance.
//
// One process asks for all VMs of a job ([Cloud.Create]). Everything that it makes carries
// the job's mark, so any process with the site's credentials can find it and remove it
// ([Cloud.Delete], [Cloud.Jobs]), whoever has died in between.
//
// The package needs microversion 2.74 of nova's API (Train, 2019), and rights of an
// administrator: only they choose the host of a server.
package openstack

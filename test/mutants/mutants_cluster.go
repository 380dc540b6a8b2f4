package main

// What only a whole cluster shows. Each takes minutes: keep them few.
var clusterMutants = []Mutant{
	{
		Name:    "vfs-of-two-jobs-in-a-vlan",
		Defence: "The VMs of two jobs do not hear each other by VFs on one card.",
		File:    "vfpool/software/bridge.go",
		Old:     "name := tagBridgeName(declared.Name, tag)",
		New:     "name := tagBridgeName(declared.Name, tag*0+2000)",
		Package: "test",
		Test:    "TestVFsOfTwoJobsAreApart",
		Kind:    Cluster,
	},
}

package main

var egressMutants = []Mutant{
	{
		Name:    "only-what-the-site-allows",
		Defence: "VMs connect only to the destinations that the site lists.",
		File:    "vmlaunch/egress/packets.go",
		Old:     "if !w.allowed.allow(ctx, to, w.names) {",
		New:     "if !w.allowed.allow(ctx, to, w.names) && false {",
		Package: "vmlaunch/egress",
		Test:    "TestOnlyWhatTheSiteAllows",
	},
	{
		Name:    "the-nodes-loopback-is-its-own",
		Defence: "A VM reaches no program that listens on the node's loopback, whatever the site lists.",
		File:    "vmlaunch/egress/allowed.go",
		Old:     "if addr.IsLoopback() || ",
		New:     "if ",
		Package: "vmlaunch/egress",
		Test:    "TestOnlyWhatTheSiteAllows",
	},
	{
		Name:    "connections-of-a-vm-are-bounded",
		Defence: "A VM takes no more of the node's ports and descriptors than there are for it.",
		File:    "vmlaunch/egress/packets.go",
		Old:     "\tdefault:\n\t\treturn false\n",
		New:     "\tdefault:\n\t\tgo func() { w.slots <- struct{}{} }()\n\t\treturn true\n",
		Package: "vmlaunch/egress",
		Test:    "TestConnectionsAreBounded",
	},
	{
		Name:    "vms-connect-as-the-owner",
		Defence: "The process that connects VMs with the site has the rights of the job's owner.",
		File:    "vmlaunch/egress/server.go",
		Old:     "c := o.Command(context.Background(),",
		New:     "c := owner.Owner{}.Command(context.Background(),",
		Package: "vmlaunch/egress",
		Test:    "TestTheServerIsTheOwner",
	},
	{
		Name:    "packets-are-bounded",
		Defence: "A packet from the guest takes no more of the agent's memory than there is for it.",
		File:    "guest/egress.go",
		Old:     "length < minPacket || length > EgressMTU",
		New:     "false",
		Package: "guest",
		Test:    "TestPacketsThatAreNone",
	},
}

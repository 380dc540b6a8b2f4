package main

var mpiMutants = []Mutant{
	{
		Name:    "neighbours-need-the-library",
		Defence: "A rank that cannot see the files of other VMs is not told that their ranks are its neighbours.",
		File:    "internal/pmi/conversation.go",
		Old:     "if !c.layout.Shared.Ready() {",
		New:     "if c.layout.Shared == nil {",
		Package: "internal/pmi",
		Test:    "TestRelayConversation",
	},
	{
		Name:    "mpi-gets-zeroed-memory",
		Defence: "A new file of MPI's is zero, whatever was there before.",
		File:    "ivshmem/mpi/region.c",
		Old:     "\tif (to > used)\n",
		New:     "\tif (0 && to > used)\n",
		Package: "ivshmem/mpi",
		Test:    "TestFilesOfMPI",
	},
	{
		Name:    "a-programs-part-is-its-own",
		Defence: "MPI and a program that uses the device itself do not write to the same memory.",
		File:    "ivshmem/mpi/region.c",
		Old:     "if (dir->program || !occupant(0, programs, NULL)) {",
		New:     "if (1) {",
		Package: "ivshmem/mpi",
		Test:    "TestProgramsOfTheDevice",
	},
	{
		Name:    "a-child-of-vfork-closes-nothing",
		Defence: "What a child of vfork closes, its parent still has.",
		File:    "ivshmem/mpi/files.c",
		Old:     "return raw(SYS_getpid) != self; }",
		New:     "return 0 && raw(SYS_getpid) != self; }",
		Package: "ivshmem/mpi",
		Test:    "TestFilesOfMPI",
	},
	{
		Name:    "robust-mutexes-pass-on",
		Defence: "A thread that ends with a robust mutex in shared memory does not block the others of its VM.",
		File:    "ivshmem/mpi/locks.c",
		Old:     "!m->robust || !dead(owner)",
		New:     "!m->robust || 1 || !dead(owner)",
		Package: "ivshmem/mpi",
		Test:    "TestFilesOfMPI",
	},
}

package main

var directoryMutants = []Mutant{
	{
		Name:    "directory-is-the-servers-root",
		Defence: "A guest whose kernel lies reaches nothing of the owner's outside of the directory.",
		File:    "vmlaunch/hostdir/process.go",
		Old:     "if err := unix.Chroot(\".\"); err != nil {",
		New:     "if err := unix.Access(\".\", 0); err != nil {",
		Package: "vmlaunch/hostdir",
		Test:    "TestTheDirectoryIsTheServersRoot",
	},
	{
		Name:    "directory-server-is-the-owner",
		Defence: "A VM can do in a directory only what its owner may do.",
		File:    "vmlaunch/hostdir/process.go",
		Old:     "err = syscall.Setresuid(int(o.UID), int(o.UID), int(o.UID))",
		New:     "err = syscall.Setresuid(0, 0, 0)",
		Package: "vmlaunch/hostdir",
		Test:    "TestTheServerIsTheOwner",
	},
	{
		Name:    "directory-server-has-the-owners-groups",
		Defence: "A VM can do in a directory only what its owner's groups may do.",
		File:    "vmlaunch/hostdir/process.go",
		Old:     "err := syscall.Setgroups(groups)",
		New:     "err := syscall.Setgroups([]int{0})",
		Package: "vmlaunch/hostdir",
		Test:    "TestTheServerIsTheOwner",
	},
	{
		Name:    "read-only-is-the-servers-word",
		Defence: "A guest cannot change a directory that the user has given read-only.",
		File:    "vmlaunch/hostdir/files.go",
		Old:     "if readOnly {",
		New:     "if readOnly && false {",
		Package: "vmlaunch/hostdir",
		Test:    "TestADirectoryThatIsReadOnly",
	},
	{
		Name:    "fuse-messages-are-bounded",
		Defence: "A message from the guest takes no more of the agent's memory than there is for it.",
		File:    "guest/mount.go",
		Old:     "if length < minMessage || length > maxMessage {",
		New:     "if length < minMessage && length > maxMessage {",
		Package: "guest",
		Test:    "TestMessagesThatAreNone",
	},
}

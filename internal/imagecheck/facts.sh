#!/bin/sh
# Prints what a guest has, as KEY=VALUE. slurmv image check runs it in the VM as the user, after internal/imagempi/mpi.sh,
# with any POSIX shell.
say() { [ -z "$2" ] || printf '%s=%s\n' "$1" "$2"; }

# agent prints the path of the guest agent that runs.
agent() {
	for process in /proc/[0-9]*; do
		read -r name <"$process/comm" || continue
		[ "$name" != slurmv-guest ] || tr '\0' '\n' <"$process/cmdline" | head -n 1
	done 2>/dev/null | head -n 1
}

# file_system NAME: whether the kernel has the file system, or a module of that name.
file_system() {
	modules=/lib/modules/$(uname -r)
	grep -qw "$1" /proc/filesystems || grep -qs "/$1\.ko" "$modules/modules.dep" "$modules/modules.builtin"
}

. /etc/os-release
say os "$PRETTY_NAME"
say kernel "$(uname -r)"
guest=$(agent)
say agent "$guest"
say agent_version "$(first "$guest" -version)"
say cloud_init "$(cloud-init --version 2>&1 | sed -n 's,.*cloud-init ,,p')"
for name in fuse 9p virtiofs; do
	if file_system $name; then say file_system $name; fi
done
mpis | while read -r _ name; do say mpi "$name"; done
pmi_libraries | while read -r name; do say pmi_library "$name"; done
say pmi "${PMI_FD:+PMI_FD}"

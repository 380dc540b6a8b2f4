// Package mpirun prepares the VMs of a job for a user's own mpirun, which starts its
// tasks by ssh: the files that mpirun needs in every VM, and the variables that point to
// them. It makes texts only; its callers bring them into the VMs.
package mpirun

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
)

// Dir is the directory of the files in a VM. It belongs to the job's owner and vanishes
// with the VM. It is below /var because no directory of the host can be mounted there,
// while one can be mounted over /tmp.
func Dir(uid int) string { return fmt.Sprintf("/var/tmp/slurmv-ssh-%d", uid) }

// Prepared returns a command that prints [Done] in a VM that has the files. It looks only
// for the configuration, which is written last.
func Prepared(dir string) []string {
	return []string{"/bin/sh", "-c", `if [ -O "$0/config" ]; then echo ` + Done + `; fi`, dir}
}

// Done is what [Prepared] and the script of [Files] print.
const Done = "slurmv-ssh-done"

// Files are the contents of [Dir].
type Files struct {
	Dir   string
	Key   string              // private; its public key is on all VMs
	Nodes []nodeagent.NodeVMs // with the sshds' public host keys
	Slots int                 // tasks per VM, in mpirun's sense
}

// Script returns a program for the shell of every VM. It moves complete files into place,
// so that two runs at once do no harm. Each key is authorized in all VMs before it is
// written to any.
func (f Files) Script() string {
	var b strings.Builder
	fmt.Fprintf(&b, `umask 077
fail() { echo "$1" >&2; exit 1; }
ssh=$(command -v ssh) || ssh=/usr/bin/ssh
[ -x "$ssh" ] || fail 'the image has no ssh: install openssh-client in it, or use the default launcher'
mkdir -p %[1]s && [ -O %[1]s ] && cd %[1]s || fail 'make %[1]s in the VM: somebody else has it, or the disk is full'
put() { cat > "$1.$$" && chmod "$2" "$1.$$" && mv "$1.$$" "$1" || fail "write %[1]s/$1 in the VM"; }
`, f.Dir)
	f.put(&b, "key", f.Key)
	f.put(&b, "known_hosts", f.knownHosts())
	f.put(&b, "hostfile", f.hostfile())
	// For programs that take a single word as the ssh command.
	fmt.Fprintf(&b, "{ echo '#!/bin/sh'; echo \"exec $ssh -F %s/config \\\"\\$@\\\"\"; } | put ssh 700\n", f.Dir)
	f.put(&b, "config", f.config())
	fmt.Fprintf(&b, "echo %s\n", Done)
	return b.String()
}

// put writes a here-document. None of the texts contains its end line.
func (f Files) put(b *strings.Builder, name, text string) {
	fmt.Fprintf(b, "put %s 600 <<'END OF FILE'\n%s\nEND OF FILE\n", name, strings.TrimRight(text, "\n"))
}

// hostfile returns a line for each slot. Hydra, Open MPI and Intel MPI read only this
// form alike: each has a different syntax for numbers of slots.
func (f Files) hostfile() string {
	var b strings.Builder
	for _, node := range f.Nodes {
		for _, vm := range node.VMs {
			b.WriteString(strings.Repeat(vm.Name+"\n", max(f.Slots, 1)))
		}
	}
	return b.String()
}

func (f Files) knownHosts() string {
	var b strings.Builder
	for _, node := range f.Nodes {
		for _, vm := range node.VMs {
			fmt.Fprintf(&b, "%s,%s %s\n", vm.Name, vm.Address, node.HostKey)
		}
	}
	return b.String()
}

// config makes ssh ask no questions and use none of the user's own keys. ssh also
// retries: a VM on a busy node may be slow to answer, and Hydra waits for ever for a task
// whose ssh has failed. ConnectTimeout bounds each attempt with sshd's first line, INFO is
// the lowest level at which ssh says that sshd has closed the connection.
func (f Files) config() string {
	return fmt.Sprintf(`IdentityFile %[1]s/key
IdentitiesOnly yes
IdentityAgent none
PreferredAuthentications publickey
UserKnownHostsFile %[1]s/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
UpdateHostKeys no
BatchMode yes
ConnectionAttempts 5
ConnectTimeout 150
ForwardX11 no
LogLevel INFO
`, f.Dir)
}

// ofOneVM are variables that mpirun would copy to other VMs, where they are wrong.
var ofOneVM = []string{"HOSTNAME", "SLURMV_VM"}

// Env returns the environment of an mpirun: env without the variables of the step in
// which it starts, and with variables that make it use the files of dir. Variables that
// the user has set stay.
func Env(env []string, dir string) []string {
	var kept []string
	set := map[string]bool{}
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); !misleads(name, entry) {
			kept = append(kept, entry)
			set[name] = true
		}
	}
	for _, v := range variables(dir) {
		if !set[v.name] {
			kept = append(kept, v.name+"="+v.value)
		}
	}
	return kept
}

// bySrun are variables by which Slurm, from 24.11, makes each mpirun of a job start its
// ranks by srun. ssh does not know --external-launcher either.
var bySrun = []string{
	"HYDRA_BOOTSTRAP=slurm", "HYDRA_LAUNCHER_EXTRA_ARGS=--external-launcher",
	"I_MPI_HYDRA_BOOTSTRAP=slurm", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=--external-launcher",
	"OMPI_MCA_plm_slurm_args=--external-launcher", "PRTE_MCA_plm_slurm_args=--external-launcher",
}

// misleads reports whether the variable must be removed. With the variables of a task,
// mpirun believes that it is in a step of Slurm and calls srun, which a VM does not have.
func misleads(name, entry string) bool {
	return slurm.OfATask(name) || slices.Contains(ofOneVM, name) || slices.Contains(bySrun, entry)
}

type variable struct{ name, value string }

// variables returns our own variables, then those of Hydra (MPICH, MVAPICH), Intel MPI,
// Open MPI up to 4 and Open MPI 5.
func variables(dir string) []variable {
	ssh, hostfile := dir+"/ssh", dir+"/hostfile"
	return []variable{
		{"SLURMV_HOSTFILE", hostfile}, {"SLURMV_SSH", ssh},
		{"HYDRA_HOST_FILE", hostfile}, {"HYDRA_LAUNCHER", "ssh"}, {"HYDRA_LAUNCHER_EXEC", ssh},
		{"I_MPI_HYDRA_HOST_FILE", hostfile}, {"I_MPI_HYDRA_BOOTSTRAP", "ssh"}, {"I_MPI_HYDRA_BOOTSTRAP_EXEC", ssh},
		{"OMPI_MCA_orte_default_hostfile", hostfile}, {"OMPI_MCA_plm_rsh_agent", ssh},
		{"PRTE_MCA_prte_default_hostfile", hostfile}, {"PRTE_MCA_plm_ssh_agent", ssh},
	}
}

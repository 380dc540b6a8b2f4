//go:build cluster

package test

import (
	"strings"
	"testing"
)

// The user's own mpirun, once, in the first VM; its tasks in all of them. The
// script also looks for what it must not find: traces on the hosts.
const sshScript = `
mpicc -O2 -o hello-mpi ~/hello-mpi.c
slurm-v-run --launcher=ssh mpirun -n 8 ./hello-mpi; echo "mpirun: $?"
echo a line of standard input | slurm-v-run --launcher=ssh sh -c 'cat; hostname; sort $SLURMV_HOSTFILE | uniq -c; env | grep ^SLURM_
	md5sum < ${SLURMV_HOSTFILE%/*}/key > key1; echo "finds $SLURMV_IVSHMEM of $SLURMV_IVSHMEM_SIZE"'
slurm-v-run --launcher=ssh sh -c 'md5sum < ${SLURMV_HOSTFILE%/*}/key > key2
	for vm in vm0 vm1 vm2 vm3; do $SLURMV_SSH $vm hostname; done | tr "\n" " "; echo; exit 3'; echo "exit: $?"
cmp key1 key2 && echo the key is the same
slurm-v-run -n 4 sh -c 'stat -c "%a %U" /var/tmp/slurmv-ssh-*' | sort | uniq -c
slurm-v-run -Q -n 1 sh -c 'env | grep -q ^SLURM_ && echo by srun there are variables'
srun --overlap --ntasks-per-node=1 -n2 -N2 sh -c 'touch /tmp/slurmv-ssh-seen; ls -d /var/tmp/slurmv-ssh-* /tmp/slurmv-ssh-* ~/.ssh; rm /tmp/slurmv-ssh-seen' 2>/dev/null > hosts
`

func TestMpirunOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	hello(t, alice, 8)
	j := alice.submit(t, twoByTwo+" --ivshmem=1:1M", sshScript)
	out := j.completes()
	contains(t, out, "mpirun: 0\n", "exit: 3\n", "the ranks add up to 28, which is right",
		"a line of standard input\nvm0\n      2 vm0\n      2 vm1\n      2 vm2\n      2 vm3\n",
		"finds /dev/slurmv/ivshmem0 of 1048576\n", "vm0 vm1 vm2 vm3 \n", "the key is the same\n", "      4 700 alice\n", "by srun there are variables\n")
	if got := j.file("hosts"); got != "/tmp/slurmv-ssh-seen\n/tmp/slurmv-ssh-seen" {
		t.Errorf("on the hosts there is more than what a task has made to be seen:\n%s", got)
	}
	for _, vm := range []string{"vm0", "vm1", "vm2", "vm3"} {
		if n := strings.Count(out, "of 8 runs in "+vm+" "); n != 2 {
			t.Errorf("%d ranks in %s, want 2:\n%s", n, vm, out)
		}
	}
	if strings.Contains(out, "SLURM_") {
		t.Errorf("Slurm's variables in the VM:\n%s", out)
	}
}

// A login makes the sshds of one node known by another key than those of the
// other; and an mpirun that is killed leaves no task in any VM.
func TestMpirunAfterALogin(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=90", whileRun+`
slurm-v-run -Q -n 2 true
slurmv ssh /vm1 -- hostname
slurm-v-run --launcher=ssh sh -c '$SLURMV_SSH vm1 echo reached'
slurm-v-run --launcher=ssh sh -c 'kill -TERM $$'; echo "signal: $?"
slurm-v-run --launcher=ssh ./no-such-mpirun; echo "missing: $?"
slurmv ssh /vm0 -- hostname

tasks() { [ $(slurm-v-run -Q -n 2 sh -c 'pgrep -x sleep' | wc -l) = $1 ]; }
slurm-v-run --launcher=ssh mpirun -n 2 sleep 300 & run=$!
while_run $run tasks 2
scancel $(squeue -h -s -j $SLURM_JOB_ID -o '%i %j' | awk '$2 == "mpirun" { print $1 }')
wait $run; echo "cancelled: $?"
until tasks 0; do :; done
echo no task is left`)
	contains(t, j.completes(), "vm1\nreached\n", "signal: 143\n", "No such file or directory", "missing: 2\n", "vm0\n", "cancelled: 137\n", "no task is left")
}

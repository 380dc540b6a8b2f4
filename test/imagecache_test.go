//go:build cluster

package test

import (
	"fmt"
	"strings"
	"testing"
)

// remoteImage puts a copy of the demo image, which u alone can read, on the file
// server and returns its path. It may be copied to nodes when it is some seconds old.
func (u user) remoteImage(t *testing.T) string {
	t.Helper()
	image := output(t, "../scripts/guest-image")
	path := u.must(t, fmt.Sprintf(`umask 077; f=$(mktemp -u "$(realpath ~/../../shared)/image-XXXXXX")
cp %s $f && sleep 2.5 && echo $f`, image))
	t.Cleanup(func() { u.run(t, "rm -f "+path) })
	return path
}

// cached are the lines about an image in what root sees of n1's cache.
func cached(t *testing.T, image string) string {
	t.Helper()
	return root.must(t, "slurmv image cache | grep -F "+image+" || true", "--node", "n1")
}

// Two jobs at once, and one later: the image crosses the network once. It is its
// owner's all the time.
func TestAnImageIsCopiedToANodeOnce(t *testing.T) {
	t.Parallel()
	image := alice.remoteImage(t)
	options := small + " --nodelist=n1 --vm-image=" + image
	script := "slurm-v-run -Q hostname; slurmv report $SLURM_JOB_ID"
	first, second := alice.submit(t, options, script), alice.submit(t, options, script)
	said := first.completes() + second.completes()
	if n := strings.Count(said, "image on n1: copied to the node, "); n != 1 {
		t.Errorf("%d of two jobs have copied the image:\n%s", n, said)
	}
	if !strings.Contains(said, "copied to the node by another job") && !strings.Contains(said, "image on n1: on the node already") {
		t.Errorf("nobody used the other's copy:\n%s", said)
	}
	contains(t, alice.submit(t, options, script).completes(), "vm0\n", "image on n1: on the node already")

	line := cached(t, image)
	key, rest, _ := strings.Cut(line, " ")
	if strings.Contains(line, "\n") || !strings.HasPrefix(strings.TrimSpace(rest), "6001 ") || !strings.Contains(rest, " - ") {
		t.Errorf("root sees this of a copy that alice has used and uses no more:\n%s", line)
	}
	refused(t, image, image)
	file := root.must(t, "ls $SLURMV_STATE_DIR/images/"+key+"*/0", "--node", "n1")
	refused(t, file, file)
	contains(t, root.must(t, "slurmv image forget "+image, "--node", "n1"), image)
	if line := cached(t, image); line != "" {
		t.Errorf("after slurmv image forget:\n%s", line)
	}
}

// refused checks that bob has no use of a file of alice's, whichever way.
func refused(t *testing.T, image, name string) {
	t.Helper()
	for _, mode := range []string{"cache", "direct", "copy"} {
		j := bob.submit(t, small+" --nodelist=n1 --vm-image-mode="+mode+" --vm-image="+image, "slurm-v-run hostname")
		if s := j.await("COMPLETED", "FAILED"); s != "FAILED" {
			t.Errorf("bob's job with %s (%s) is %s", image, mode, s)
		}
		contains(t, j.output(), name+" is not readable by user bob")
	}
}

// killAgent kills the agent of a job on the node where it runs, and no agent of another
// cluster.
func killAgent(job string) string {
	return `for p in $(pgrep -f "^[^ ]*/slurmv-agent launch"); do
	if [[ /proc/$p/ns/net -ef /proc/self/ns/net ]] && grep -qz "^SLURMV_JOB=` + job + `$" /proc/$p/environ; then kill -KILL $p; fi
done`
}

// The agent is killed while it copies, by the pace of a file server that stops.
// Nothing is left but what the next job needs: it copies anew.
func TestAnAgentIsKilledWhileItCopies(t *testing.T) {
	t.Parallel()
	image := alice.remoteImage(t)
	options := small + " --nodelist=n1 --no-requeue --vm-image=" + image
	killed := alice.submit(t, options, "slurm-v-run hostname")
	root.must(t, fmt.Sprintf(`server=$(cat /run/bindfs.pid); trap 'kill -CONT $server' EXIT
for i in $(seq 6000); do compgen -G "$SLURMV_STATE_DIR/images/*/holders/%[1]s.*" >/dev/null &&
	compgen -G "$SLURMV_STATE_DIR/images/*/0.partial" >/dev/null && break; sleep 0.01; done
kill -STOP $server; ls $SLURMV_STATE_DIR/images/*/0.partial
%[2]s`, killed.id, killAgent(killed.id)), "--node", "n1")
	if s := killed.await("COMPLETED", "FAILED"); s != "FAILED" {
		t.Errorf("the job of the killed agent is %s", s)
	}
	if line := cached(t, image); line != "" && !strings.Contains(line, "not whole") {
		t.Errorf("half a copy passes for a whole one:\n%s", line)
	}
	next := alice.submit(t, options, "slurm-v-run -Q hostname; slurmv report $SLURM_JOB_ID")
	contains(t, next.completes(), "vm0\n", "image on n1: copied to the node, ")
}

// What the modes do, as the record of the launch has it.
func TestImageModes(t *testing.T) {
	t.Parallel()
	image := alice.remoteImage(t)
	for mode, want := range map[string]string{"direct": "used where it lies", "copy": "copied for each VM"} {
		j := alice.submit(t, small+" --nodelist=n1 --vm-image-mode="+mode+" --vm-image="+image,
			"slurm-v-run -Q hostname; slurmv report $SLURM_JOB_ID")
		contains(t, j.completes(), "vm0\n", "image on n1: "+want)
	}
	if line := cached(t, image); line != "" {
		t.Errorf("neither mode caches, and the cache has:\n%s", line)
	}
	alice.submit(t, small+" --nodelist=n1 --vm-image-mode=cache --vm-image="+image, "slurm-v-run -Q hostname").completes()
	if line := cached(t, image); line == "" {
		t.Error("the cache does not show what it has")
	}
}

package vmstep

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
)

// ErrAllClaimed is that a run would have had to wait for an IVShmem device.
var ErrAllClaimed = errors.New("every IVShmem device of this job is claimed by another slurm-v-run (--no-wait)")

// AwaitClaim reads what the step of [ClaimCommand] says until the run has a device, or
// will not get one. It calls waiting when all devices are taken.
func AwaitClaim(says io.Reader, waiting func()) (nodeagent.Claim, error) {
	w := claimWords{waiting: waiting}
	frames := Frames{Message: w.message, Other: w.other}
	buffer := make([]byte, 4096)
	for !w.settled() {
		n, err := says.Read(buffer)
		_, _ = frames.Write(buffer[:n])
		if err != nil && !w.settled() {
			w.err = w.end()
		}
	}
	return w.claim, w.err
}

type claimWords struct {
	waiting func()
	lines   []string
	claim   nodeagent.Claim
	err     error
}

func (w *claimWords) settled() bool { return w.err != nil || w.claim.Number > 0 }

func (w *claimWords) other(line string) {
	if len(w.lines) < maxLines {
		w.lines = append(w.lines, line)
	}
}

func (w *claimWords) message(m Message) {
	if w.settled() {
		return
	}
	if w.err = refusal(m); w.err != nil || m.Kind != KindClaim {
		return
	}
	var said nodeagent.ClaimMessage
	switch w.err = m.Decode(&said); {
	case said.Claim != nil:
		w.claim = *said.Claim
	case said.Busy:
		w.err = ErrAllClaimed
	case said.Waiting:
		w.waiting()
	}
}

// end is why a step has ended that gave no answer.
func (w *claimWords) end() error {
	if cause := Cause(w.lines); cause != "" {
		return &StepError{errors.New(cause)}
	}
	return NewStepError(errors.New("the step has ended"), strings.Join(w.lines, "\n"))
}

// IVShmemEnv are the variables by which a program finds the device of its run.
func IVShmemEnv(device int, size int64) []string {
	return []string{
		fmt.Sprintf("SLURMV_IVSHMEM=/dev/slurmv/ivshmem%d", device),
		fmt.Sprintf("SLURMV_IVSHMEM_SIZE=%d", size),
	}
}

// IVShmemPeers is the variable that names the ranks which share the device with a
// task: those of its node, by the variables that Slurm sets. There may be none.
func IVShmemPeers(env func(string) string) []string {
	ranks, err := slurm.RanksHere(env)
	if err != nil {
		return nil
	}
	return []string{"SLURMV_IVSHMEM_PEERS=" + rankList(ranks)}
}

// rankList writes ranks as "0-3,8".
func rankList(ranks []int) string {
	ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	var parts []string
	for i := 0; i < len(ranks); {
		first, run := ranks[i], 1
		for i+run < len(ranks) && ranks[i+run] == first+run {
			run++
		}
		part := strconv.Itoa(first)
		if run > 1 {
			part += "-" + strconv.Itoa(first+run-1)
		}
		parts = append(parts, part)
		i += run
	}
	return strings.Join(parts, ",")
}

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

// ErrAllClaimed says that a run with --no-wait would have had to wait for an IVShmem
// device.
var ErrAllClaimed = errors.New("every IVShmem device of this job is claimed by another slurm-v-run (--no-wait)")

// AwaitClaim reads the output of the step of [ClaimCommand] until the run has a device or
// is refused one. It calls waiting if all devices are claimed.
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

// end is the error of a step that has ended without an answer.
func (w *claimWords) end() error {
	if cause := causeIn(w.lines); cause != "" {
		return &StepError{errors.New(cause)}
	}
	return NewStepError(errors.New("the step has ended"), strings.Join(w.lines, "\n"))
}

// IVShmemEnv returns the variables by which a program finds its run's device, of which it may use size bytes.
func IVShmemEnv(device int, size int64) []string {
	return []string{
		fmt.Sprintf("SLURMV_IVSHMEM=/dev/slurmv/ivshmem%d", device),
		fmt.Sprintf("SLURMV_IVSHMEM_SIZE=%d", size),
	}
}

// IVShmemPeers returns the variable that lists the ranks which share the device with a
// task: the ranks on its node, from Slurm's variables. It returns nothing if those do not
// say.
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

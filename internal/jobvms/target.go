package jobvms

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A Target is a VM in the form JOB/VM.
type Target struct {
	Job string // as Slurm writes it: 4217, or 4217_3 for a task of an array
	VM  int    // number in the job
}

var (
	jobPattern = regexp.MustCompile(`^[0-9]{1,10}(_[0-9]{1,10})?$`)
	vmPattern  = regexp.MustCompile(`^(?:vm)?([0-9]{1,6})$`)
)

// ParseTarget reads JOB/VM or JOB. Inside a job, which env tells, it also reads /VM and
// the empty text. An error is a [vmstep.UsageError].
func ParseTarget(text string, env func(string) string) (Target, error) {
	job, vm, named := strings.Cut(text, "/")
	if job == "" {
		if job = slurm.ThisJob(env); job == "" {
			return Target{}, usagef("name the job, as in 4217/vm0: this is not inside one")
		}
	}
	if err := CheckJob(job); err != nil {
		return Target{}, err
	}
	if !named {
		return Target{Job: job}, nil
	}
	found := vmPattern.FindStringSubmatch(vm)
	if found == nil {
		return Target{}, usagef("%q is not a VM; write JOB/VM, as in 4217/vm0", text)
	}
	number, err := strconv.Atoi(found[1])
	return Target{Job: job, VM: number}, err
}

// CheckJob refuses a text that is not a job id in Slurm's form.
func CheckJob(text string) error {
	if !jobPattern.MatchString(text) {
		return usagef("%q is not a job id, such as 4217 or 4217_3", text)
	}
	return nil
}

func (t Target) String() string { return fmt.Sprintf("%s/vm%d", t.Job, t.VM) }

func usagef(format string, args ...any) error {
	return &vmstep.UsageError{Reason: fmt.Sprintf(format, args...)}
}

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A target is a VM as a user names it: JOB/VM.
type target struct {
	job string // as Slurm writes it: 4217, or 4217_3 for a task of an array
	vm  int    // number in the job
}

var (
	jobPattern = regexp.MustCompile(`^[0-9]{1,10}(_[0-9]{1,10})?$`)
	vmPattern  = regexp.MustCompile(`^(?:vm)?([0-9]{1,6})$`)
)

// parseTarget reads JOB/VM, JOB and, inside a job, which env tells, /VM and the
// empty text.
func parseTarget(text string, env func(string) string) (target, error) {
	job, vm, named := strings.Cut(text, "/")
	if job == "" {
		if job = env("SLURM_JOB_ID"); job == "" {
			return target{}, usagef("name the job, as in 4217/vm0: this is not inside one")
		}
	}
	if err := checkJob(job); err != nil {
		return target{}, err
	}
	if !named {
		return target{job: job}, nil
	}
	found := vmPattern.FindStringSubmatch(vm)
	if found == nil {
		return target{}, usagef("%q is not a VM; write JOB/VM, as in 4217/vm0", text)
	}
	number, err := strconv.Atoi(found[1])
	return target{job: job, vm: number}, err
}

func checkJob(text string) error {
	if !jobPattern.MatchString(text) {
		return usagef("%q is not a job id, such as 4217 or 4217_3", text)
	}
	return nil
}

func (t target) String() string { return fmt.Sprintf("%s/vm%d", t.job, t.vm) }

// targetOf takes the target from what stands before "--", at most one word.
func targetOf(args []string, env func(string) string) (target, error) {
	if len(args) == 0 {
		return parseTarget("", env)
	}
	return parseTarget(args[0], env)
}

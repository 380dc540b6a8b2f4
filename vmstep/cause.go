package vmstep

import (
	"regexp"
	"strings"
)

// stepdError matches what the agent says through Slurm's log, which slurmstepd
// prints as an error of its own.
var stepdError = regexp.MustCompile(`^slurmstepd[^:]*: error: (?:spank: )?(?:slurm-?v: )?(.*)$`)

var srunError = regexp.MustCompile(`^srun: (?:error|fatal): (.*)$`)

// consequence matches what Slurm says after a failure, never its cause.
var consequence = regexp.MustCompile(`^(spank: required plugin|spank: slurmv\.so|task_g_|_exec_wait|` +
	`Exited with exit code|Timed out waiting|Terminat|Killed|` +
	`\S+: tasks? [0-9,-]+: (Exited with|Terminated|Killed|Running)|` +
	`.*: task_init_privileged\(\)|Unable to init|slurm_send|_send_|Application launch failed|Job step aborted)`)

// cancelled matches the end that somebody or something else decided.
var cancelled = regexp.MustCompile(`\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+[A-Z]).*)? \*\*\*`)

// Cause picks from the output of the VM step's srun the one sentence that says
// why the step ended, or "" if nothing does. The first error is the cause: what
// follows it are its consequences.
func Cause(lines []string) string {
	for _, pick := range []func(string) string{agentSentence, srunSentence, cancelSentence} {
		for _, line := range lines {
			if s := pick(strings.TrimSpace(line)); s != "" {
				return s
			}
		}
	}
	return ""
}

func agentSentence(line string) string { return sentence(stepdError, line) }

func srunSentence(line string) string { return sentence(srunError, line) }

func sentence(pattern *regexp.Regexp, line string) string {
	m := pattern.FindStringSubmatch(line)
	if m == nil || consequence.MatchString(m[1]) || cancelled.MatchString(m[1]) {
		return ""
	}
	return m[1]
}

func cancelSentence(line string) string {
	switch m := cancelled.FindStringSubmatch(line); {
	case m == nil:
		return ""
	case m[1] == "TIME LIMIT":
		return "the time limit was reached"
	case m[1] == "NODE FAILURE":
		return "a node failed"
	case m[1] != "":
		return "the step was cancelled: " + strings.ToLower(m[1])
	}
	return "the step was cancelled"
}

// ownNoise reports whether a line is Slurm's and not some script's.
func ownNoise(line string) bool {
	return strings.HasPrefix(line, "srun: ") || strings.HasPrefix(line, "slurmstepd") ||
		strings.HasPrefix(line, "slurmv-agent: ")
}

var alreadyRunning = regexp.MustCompile(`the VMs of job \S+ are already running`)

// AlreadyRunning reports whether the step ended only because another one, started
// from another host, already has the VMs.
func AlreadyRunning(cause string) bool { return alreadyRunning.MatchString(cause) }

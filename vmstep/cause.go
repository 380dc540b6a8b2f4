package vmstep

import (
	"regexp"
	"strings"
)

// ErrorMark begins the errors of the plugin and of the agent in the log of a step.
// slurmstepd prints them as its own errors, and none of Slurm's errors begins like this.
// The plugin's copy is in spank/mark.h, which is generated from this constant.
const ErrorMark = "slurmv: "

var markedError = regexp.MustCompile(`^slurmstepd[^:]*: error: (?:spank: )?` + ErrorMark + `(.*)$`)

// execError matches slurmstepd's error if it cannot start the step's program, the agent.
// The agent itself cannot report then.
var execError = regexp.MustCompile(`^slurmstepd[^:]*: error: (execve\(\): .*)$`)

var srunError = regexp.MustCompile(`^srun: (?:error|fatal): (.*)$`)

// consequence matches errors that srun prints as the consequence of a failure, never as its
// cause.
var consequence = regexp.MustCompile(`^(spank: required plugin|spank: slurmv\.so|` +
	`Exited with exit code|Timed out waiting|Terminat|Killed|` +
	`\S+: tasks? [0-9,-]+: (Exited with|Terminated|Killed|Running)|` +
	`slurm_send|Application launch failed|Job step aborted)`)

// cancelled matches the line of a step or job that a person, a limit or a failure has
// ended.
var cancelled = regexp.MustCompile(`\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+[A-Z]).*)? \*\*\*`)

// causeIn picks from the output of the VM step's srun the one sentence that says why the step
// ended; "" if no line does. Sentences of the agent or the plugin come before Slurm's. Of
// several errors, the first is the cause, and the others are its consequences.
func causeIn(lines []string) string {
	for _, pick := range []func(string) string{agentSentence, execSentence, srunSentence, cancelSentence} {
		for _, line := range lines {
			if s := pick(strings.TrimSpace(line)); s != "" {
				return s
			}
		}
	}
	return ""
}

func agentSentence(line string) string { return sentence(markedError, line) }

func execSentence(line string) string { return sentence(execError, line) }

func srunSentence(line string) string {
	s := sentence(srunError, line)
	if consequence.MatchString(s) || cancelled.MatchString(s) {
		return ""
	}
	return s
}

func sentence(pattern *regexp.Regexp, line string) string {
	m := pattern.FindStringSubmatch(line)
	if m == nil {
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

// ownNoise reports whether a line is from Slurm or the agent, and not from a script.
func ownNoise(line string) bool {
	return strings.HasPrefix(line, "srun: ") || strings.HasPrefix(line, "slurmstepd") ||
		strings.HasPrefix(line, "slurmv-agent: ")
}

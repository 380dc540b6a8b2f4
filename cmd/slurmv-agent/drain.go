package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"time"
)

// drainReason begins the reasons of the nodes that we have drained, so that we
// resume those and no others.
const drainReason = "slurm-v:"

// scontrolPatience bounds how long slurmctld may take to answer about a node.
const scontrolPatience = 20 * time.Second

// drain takes the node out of use: what a job could not give back must not meet
// the next one. The jobs that run on it go on.
func drain(ctx context.Context, node string, job uint32) error {
	reason := fmt.Sprintf("%s job %d left something; see 'slurmv clean --node-name %s'", drainReason, job, node)
	return scontrol(ctx, "update", "nodename="+node, "state=drain", "reason="+reason)
}

// resume gives back a node that we drained, once it is clean.
func resume(ctx context.Context, node string) error {
	out, err := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "node", node).Output()
	if err != nil {
		return fmt.Errorf("ask scontrol for node %s: %w%s", node, err, stderrOf(err))
	}
	if !drainedByUs(string(out)) {
		return nil
	}
	return scontrol(ctx, "update", "nodename="+node, "state=resume")
}

var ourReason = regexp.MustCompile(`\bState=\S*DRAIN\S* .*\bReason=` + regexp.QuoteMeta(drainReason))

// drainedByUs reads one line of scontrol show node.
func drainedByUs(line string) bool { return ourReason.MatchString(line) }

func scontrol(ctx context.Context, args ...string) error {
	if _, err := exec.CommandContext(ctx, "scontrol", args...).Output(); err != nil {
		return fmt.Errorf("scontrol %s %s: %w%s", args[0], args[1], err, stderrOf(err))
	}
	return nil
}

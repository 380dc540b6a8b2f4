package main

import (
	"context"
	"fmt"
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
	text, err := runSlurm(ctx, nil, "scontrol", "--oneliner", "show", "node", node)
	if err != nil {
		return err
	}
	if !drainedByUs(text) {
		return nil
	}
	return scontrol(ctx, "update", "nodename="+node, "state=resume")
}

var ourReason = regexp.MustCompile(`\bState=\S*DRAIN\S* .*\bReason=` + regexp.QuoteMeta(drainReason))

// drainedByUs reads one line of scontrol show node.
func drainedByUs(line string) bool { return ourReason.MatchString(line) }

func scontrol(ctx context.Context, args ...string) error {
	_, err := runSlurm(ctx, nil, "scontrol", args...)
	return err
}

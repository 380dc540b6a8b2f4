package main

import (
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// twelve is ConRDMA's second experiment. The paper does not say when its senders stop: here
// they stop kind by kind, so that one sees who gets the idle bandwidth.
var twelve = crowd(4)

func crowd(each int) scenario {
	const phase = 8 // iterations
	s := scenario{iterations: 3 * phase, surplus: 0.4}
	for range each {
		s.senders = append(s.senders, sender{"video", 20, 1, phase}, sender{"AI", 5, 1, 2 * phase}, sender{"file", 0, 1, 3 * phase})
	}
	return s
}

// runTwelve runs the experiment if the placement puts the VMs where the bed has them.
func runTwelve(link config.Rate, interval time.Duration) ([]result, error) {
	steps := placed(link, 0)
	if steps[0].on() != "n1" || steps[1].on() != "n2" {
		return nil, fmt.Errorf("senders and partners are not on one node each: %s; %s", steps[0], steps[1])
	}
	return twelve.runBoth(link, interval)
}

// placed returns where the VMs of the experiment go if the hosts keep reserve percent.
func placed(link config.Rate, reserve uint32) []step {
	return newCluster(link, reserve).arrive(experiment{scenario: twelve, link: link, minima: true})
}

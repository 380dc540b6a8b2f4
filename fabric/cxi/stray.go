package cxi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
)

// All returns the services of all cards, by card and ID. If some cards cannot be read, it
// returns those of the others and an error.
func (l *Library) All() (all []Placed, err error) {
	devices, err := l.Devices()
	for _, card := range devices {
		found, e := l.matching(card, func(Placed) bool { return true })
		all, err = append(all, found...), errors.Join(err, e)
	}
	slices.SortFunc(all, func(a, b Placed) int { return cmp.Or(byNumber(a.Card, b.Card), cmp.Compare(a.ID, b.ID)) })
	return all, err
}

// Stray returns the services with a VNI of the pools that no live job owns. List the
// services first and ask for the live jobs afterwards: a job that begins in between is
// then among the jobs, though its services may not be among the services.
func Stray(all []Placed, pools []fabric.Pool, live []Job) (strays []Placed) {
	for _, s := range all {
		owned := slices.ContainsFunc(live, func(j Job) bool { return j.Owns(s.Service) })
		if !s.kept() && !owned && inPools(s.VNIs, pools) {
			strays = append(strays, s)
		}
	}
	return strays
}

func inPools(vnis []fabric.Tag, pools []fabric.Pool) bool {
	return slices.ContainsFunc(pools, func(p fabric.Pool) bool {
		return p.Kind == fabric.VNI && slices.ContainsFunc(vnis, p.Has)
	})
}

// ofJob returns the job's services, by card.
func ofJob(all []Placed, job Job) (services []Placed) {
	for _, s := range all {
		if job.Owns(s.Service) {
			services = append(services, s)
		}
	}
	return services
}

// Warnings says what about a node's services lets jobs disturb each other: that processes
// without a service can use the cards by the default one.
func Warnings(all []Placed) []string {
	var cards []string
	for _, s := range all {
		if s.ID == DefaultService && s.Enabled {
			cards = append(cards, s.Card)
		}
	}
	if len(cards) == 0 {
		return nil
	}
	slices.SortFunc(cards, byNumber)
	return []string{fmt.Sprintf("the default CXI service is enabled on %s, so jobs without VNIs of their own hear each other: "+
		"disable it (cxi_service disable -d %s -s %d)", enumerate(cards), cards[0], DefaultService)}
}

// byNumber puts cxi2 before cxi10.
func byNumber(a, b string) int {
	stem := func(name string) (string, int) {
		digits := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz")
		n, _ := strconv.Atoi(digits)
		return strings.TrimSuffix(name, digits), n
	}
	textA, a1 := stem(a)
	textB, b1 := stem(b)
	return cmp.Or(cmp.Compare(textA, textB), cmp.Compare(a1, b1), cmp.Compare(a, b))
}

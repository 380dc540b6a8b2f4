// Program vf-sharing measures how VMs share a link; see bench/vf-sharing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// An order says how to measure, and where the figures go.
type order struct {
	link     config.Rate
	interval time.Duration
	out      string
}

func (o order) file(name string) string { return filepath.Join(o.out, name) }

// A choice is an experiment, which fills a section of the document.
type choice struct {
	name, heading string
	measure       func(order) (section string, err error)
}

var choices = []choice{
	{"three", "Three VMs that start one after another", order.three},
	{"twelve", "Twelve VMs on each of two nodes", order.twelve},
	{"latency", "Latency of messages", order.latency},
}

func main() {
	link := flag.Uint("rate", 100, "`Mb/s` of the link")
	interval := flag.Duration("interval", time.Second, "how long an iteration takes")
	out := flag.String("out", "docs", "`directory` for vf-sharing.md and its figures")
	flag.Parse()
	chosen, err := choose(flag.Args())
	if err == nil {
		err = run(order{config.Rate(*link), *interval, *out}, chosen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/vf-sharing:", err)
		os.Exit(1)
	}
}

// choose returns the choices of these names, all without names.
func choose(names []string) (chosen []choice, err error) {
	var known []string
	for _, c := range choices {
		known = append(known, c.name)
		if len(names) == 0 || slices.Contains(names, c.name) {
			chosen = append(chosen, c)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no experiment %s; there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// run measures, and replaces the sections of what it measured in the document.
func run(o order, chosen []choice) error {
	file := o.file("vf-sharing.md")
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sections := sectionsOf(string(old))
	for _, c := range chosen {
		fmt.Fprintf(os.Stderr, "%s: up to two minutes\n", c.heading)
		text, err := c.measure(o)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		sections[c.heading] = text
	}
	return os.WriteFile(file, []byte(document(sections)), 0o644)
}

func (o order) three() (string, error) {
	results, err := three.runBoth(o.link, o.interval)
	if err != nil {
		return "", err
	}
	return reportThree(results), drawRates(results, o.file("vf-sharing.svg"))
}

func (o order) twelve() (string, error) {
	results, err := runTwelve(o.link, o.interval)
	if err != nil {
		return "", err
	}
	return reportTwelve(results), drawRates(results, o.file("vf-sharing-twelve.svg"))
}

func (o order) latency() (string, error) {
	results, err := runLatency(o.link, o.interval)
	if err != nil {
		return "", err
	}
	return reportLatency(results, o), drawLatency(results, o.file("vf-sharing-latency.svg"))
}

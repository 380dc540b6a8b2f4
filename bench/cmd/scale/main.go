// Program scale is the Go part of bench/scale: a meter for the streams of a VM step, and
// the report.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench/scale:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "meter":
		return meter(args[1], args[2])
	case len(args) > 0 && args[0] == "report":
		return makeReport(args[1:])
	}
	return errors.New("usage: scale meter STREAM LOG | report [--out DIR] RESULTS")
}

// makeReport reads the directory of results: node.txt from the Go benchmark, and
// NODES-VMS-ROUND.log from each job.
func makeReport(args []string) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	out := flags.String("out", "docs", "`directory` for scale.md and scale.svg")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parts, err := readParts(filepath.Join(flags.Arg(0), "node.txt"))
	if err != nil {
		return err
	}
	jobs, err := readJobs(flags.Arg(0))
	if err != nil {
		return err
	}
	if err := drawTo(parts, jobs, filepath.Join(*out, "scale.svg")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*out, "scale.md"), []byte(report(parts, jobs)), 0o644)
}

// Command slurmv-workload is what slurmv prove runs in VMs and on bare nodes. It is static:
// it needs nothing of an image but a Linux kernel.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/internal/workload"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "slurmv-workload:", err)
	}
	os.Exit(status)
}

const usage = "usage: slurmv-workload look | meet | share | measure [flags] | machine | pages JOB | stay | streams"

func run(words []string) (status int, err error) {
	if len(words) == 0 {
		return 2, errors.New(usage)
	}
	switch words[0] {
	case "streams":
		return workload.Streams(os.Stdin, os.Stdout, os.Stderr), nil
	case "stay":
		fmt.Println("running")
		time.Sleep(24 * time.Hour)
		return 0, nil
	}
	print, known := printers[words[0]]
	if !known {
		return 2, errors.New(usage)
	}
	if err := print(words); err != nil {
		return 1, err
	}
	return 0, nil
}

// printers print a line of JSON.
var printers = map[string]func([]string) error{
	"pages": func(words []string) error {
		return printJSON(workload.ReadPages("/", strings.Join(words[1:], "")), nil)
	},
	"machine": func([]string) error { return printJSON(workload.ReadMachine("/")) },
	"look":    func([]string) error { return printJSON(workload.LookAndWrite(os.Getenv)) },
	"meet":    asRank, "share": asRank, "measure": asRank,
}

func printJSON[T any](found T, err error) error {
	if err != nil {
		return err
	}
	line, err := json.Marshal(found)
	if err == nil {
		_, err = fmt.Printf("%s\n", line)
	}
	return err
}

// asRank acts as one of the ranks of a step.
func asRank(words []string) error {
	rank, err := workload.JoinRanks(os.Getenv)
	if err != nil {
		return err
	}
	if err := printJSON(act(rank, words)); err != nil {
		return fmt.Errorf("rank %d: %w", rank.Number, err)
	}
	return rank.Leave()
}

func act(rank *workload.Rank, words []string) (any, error) {
	found := workload.Look(rank.Number, os.Getenv)
	switch words[0] {
	case "meet":
		err := rank.Meet(&found, os.Getenv)
		return found, err
	case "share":
		share, err := rank.Share()
		found.Shared = share
		return found, err
	}
	load, err := readLoad(words[1:])
	if err != nil {
		return nil, err
	}
	return rank.Measure(load, os.Getenv)
}

func readLoad(words []string) (load workload.Load, err error) {
	f := flag.NewFlagSet("measure", flag.ContinueOnError)
	f.IntVar(&load.Loops, "loops", 1e6, "`loops` of the computation")
	f.IntVar(&load.Elements, "elements", 1<<16, "`elements` of each array in memory")
	f.IntVar(&load.Passes, "passes", 10, "`passes` over the arrays")
	f.IntVar(&load.Answers, "answers", 100, "`answers` to short messages")
	f.IntVar(&load.Blocks, "blocks", 1, "MiB of the long message")
	return load, f.Parse(words)
}

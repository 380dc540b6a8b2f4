// Program vf-sharing measures how VMs share a link; see bench/vf-sharing.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

func main() {
	link := flag.Uint("rate", 100, "`Mb/s` of the link")
	interval := flag.Duration("interval", time.Second, "how long an iteration takes")
	out := flag.String("out", "docs", "`directory` for vf-sharing.md and vf-sharing.svg")
	flag.Parse()
	if err := run(config.Rate(*link), *interval, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench/vf-sharing:", err)
		os.Exit(1)
	}
}

func run(link config.Rate, interval time.Duration, out string) error {
	fmt.Fprintf(os.Stderr, "two runs of %v\n", iterations*interval)
	var results []result
	for _, minima := range []bool{true, false} {
		r, err := experiment{link: link, interval: interval, minima: minima}.run()
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if err := drawTo(results, filepath.Join(out, "vf-sharing.svg")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "vf-sharing.md"), []byte(report(results)), 0o644)
}

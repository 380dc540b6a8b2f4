// Program applications measures what VMs cost the applications of examples; see
// bench/applications.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
)

func main() {
	out := flag.String("out", "docs", "`directory` for applications.md and applications.json")
	from := flag.String("from", "", "only write the report, of the figures in this `file`")
	rounds := flag.Int("rounds", 10, "how many `times` everything is measured")
	always := flag.Bool("bare", false, "compare with bare nodes even if the VMs are emulated")
	flag.Parse()
	if err := run(*from, *out, *rounds, *always); err != nil {
		fmt.Fprintln(os.Stderr, "bench/applications:", err)
		os.Exit(1)
	}
}

func run(from, out string, rounds int, always bool) error {
	file := filepath.Join(out, "applications.json")
	if from == "" {
		if err := measureInto(file, rounds, always); err != nil {
			return err
		}
		from = file
	}
	r, err := read(from)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "applications.md"), []byte(report(r)), 0o644)
}

func measureInto(file string, rounds int, always bool) error {
	noKVM := hypervisor.KVMUsable("/")
	if noKVM != nil {
		fmt.Fprintf(os.Stderr, "bench/applications: %v: the VMs are emulated, and a comparison with bare nodes would be one with the emulator. "+
			"Compared with big VMs only, which are emulated as well.\n", noKVM)
	}
	r, err := measure(rounds, noKVM == nil || always)
	if err != nil {
		return err
	}
	r.KVM = noKVM == nil
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func read(file string) (r record, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return record{}, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

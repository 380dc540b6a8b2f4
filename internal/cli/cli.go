// Package cli is what the commands of slurmv have in common: the errors of a wrong command
// line, and options that mean the same everywhere.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/vmstep"
)

// Usagef returns a [vmstep.UsageError]: the command line cannot be run.
func Usagef(format string, args ...any) error {
	return &vmstep.UsageError{Reason: fmt.Sprintf(format, args...)}
}

// Args is one of cobra's checks, but returns usage errors.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return Usagef("%v", err)
		}
		return nil
	}
}

// AtMostOne and AtLeastOne are cobra's checks, but return usage errors.
func AtMostOne() cobra.PositionalArgs { return Args(cobra.MaximumNArgs(1)) }

func AtLeastOne() cobra.PositionalArgs { return Args(cobra.MinimumNArgs(1)) }

// AddOutput adds the option --output; [CheckOutput] checks its value.
func AddOutput(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "print in this `format`: text or json")
}

// CheckOutput returns a usage error if output is neither text nor json.
func CheckOutput(output string) error {
	if output != "text" && output != "json" {
		return Usagef("--output: %q is neither text nor json", output)
	}
	return nil
}

// PrintJSON prints v, indented.
func PrintJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// JobNumbers parses the numbers of jobs. An error is a usage error.
func JobNumbers(args []string) (jobs []uint32, err error) {
	for _, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 32)
		if err != nil || n == 0 {
			return nil, Usagef("%q is not the number of a job", arg)
		}
		jobs = append(jobs, uint32(n))
	}
	return jobs, nil
}

// Run runs a command that reports its errors itself. The error is its
// [jobvms.ExitStatus], or says that it cannot be run.
func Run(c *exec.Cmd) error {
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return jobvms.ExitStatus(exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", c.Path, err)
	}
	return nil
}

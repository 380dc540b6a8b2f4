package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/slurm-v/slurm-v/internal/cli"
)

// newGenDocs is a command for make. It makes the man pages and completions of the help
// texts, so that they cannot differ.
func newGenDocs() *cobra.Command {
	return &cobra.Command{
		Use:    "gen-docs DIR",
		Short:  "Write man pages (DIR/man/man1) and shell completions (DIR/completions)",
		Hidden: true,
		Args:   cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return runGenDocs(c.Context(), c.Root(), args[0])
		},
	}
}

func runGenDocs(ctx context.Context, root *cobra.Command, dir string) error {
	man := filepath.Join(dir, "man", "man1")
	completions := filepath.Join(dir, "completions")
	if err := errors.Join(os.MkdirAll(man, 0o755), os.MkdirAll(completions, 0o755)); err != nil {
		return err
	}
	wrapper, err := wrapperPage(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		doc.GenManTree(root, manHeader(), man),
		doc.GenManTree(wrapper, manHeader(), man),
		root.GenBashCompletionFileV2(filepath.Join(completions, "slurmv.bash"), true),
		root.GenZshCompletionFile(filepath.Join(completions, "_slurmv")),
		root.GenFishCompletionFile(filepath.Join(completions, "slurmv.fish"), true))
}

// manHeader leaves the date out, so cobra sets it: the day of the build or
// SOURCE_DATE_EPOCH.
func manHeader() *doc.GenManHeader {
	return &doc.GenManHeader{Section: "1", Source: "Slurm-V", Manual: "Slurm-V"}
}

// wrapperPage is slurm-v-run's man page, made of its help. slurm-v-run does not use cobra,
// because most of its options are srun's.
func wrapperPage(ctx context.Context) (*cobra.Command, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), "slurm-v-run")
	help, err := exec.CommandContext(ctx, program, "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("read the help of %s: %w", program, err)
	}
	usage, text, found := strings.Cut(string(help), "\n\n")
	if !found || !strings.HasPrefix(usage, "Usage: ") {
		return nil, fmt.Errorf("the help of %s does not begin with its usage", program)
	}
	use, _, _ := strings.Cut(strings.TrimPrefix(usage, "Usage: "), "\n")
	c := &cobra.Command{
		Use:                   use,
		Short:                 "Run a program in the VMs of a Slurm job",
		Long:                  text,
		DisableAutoGenTag:     true,
		DisableFlagsInUseLine: true,
		Run:                   func(*cobra.Command, []string) {},
	}
	c.Flags().BoolP("help", "h", false, "")
	return c, c.Flags().MarkHidden("help") // the text describes all options already
}

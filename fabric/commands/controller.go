package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
)

// A Controller does what the commands for controllers say, with the configuration in a file.
// Package oncontroller has the one that does it itself.
type Controller interface {
	Reserve(c *cobra.Command, config string) error
	Release(c *cobra.Command, config string) error
	Force(c *cobra.Command, config string, jobs []string) error
	Sweep(c *cobra.Command, config string, untilQuiet bool) error
	Pool(c *cobra.Command, config, output string) error
	Entries(c *cobra.Command, config, output string, job uint32) error
	Partitions(c *cobra.Command, config string) error
}

// Ledger is the controller of slurmv: each command becomes slurmv-ledger, which has the same
// command line.
type Ledger struct{}

func (l Ledger) Reserve(*cobra.Command, string) error                 { return l.become() }
func (l Ledger) Release(*cobra.Command, string) error                 { return l.become() }
func (l Ledger) Force(*cobra.Command, string, []string) error         { return l.become() }
func (l Ledger) Sweep(*cobra.Command, string, bool) error             { return l.become() }
func (l Ledger) Pool(*cobra.Command, string, string) error            { return l.become() }
func (l Ledger) Entries(*cobra.Command, string, string, uint32) error { return l.become() }
func (l Ledger) Partitions(*cobra.Command, string) error              { return l.become() }

func (Ledger) become() error {
	path := filepath.Join(config.Libexec, "slurmv-ledger")
	err := syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ())
	return fmt.Errorf("run %s, which is installed on controllers: %w", path, err)
}

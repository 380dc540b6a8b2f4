package main

import (
	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

// nodeOptions tell a command about the node that it runs on: the node's name and the
// configuration.
type nodeOptions struct{ config, node string }

func (o *nodeOptions) add(c *cobra.Command) {
	c.Flags().StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
	c.Flags().StringVarP(&o.node, "node-name", "N", "", "this node's `name` in Slurm, if it is not the host's")
}

// load returns the node's name and its configuration.
func (o nodeOptions) load() (node string, cfg config.Config, err error) {
	if node, err = slurm.NodeName(o.node); err != nil {
		return "", cfg, err
	}
	cfg, err = config.Load(o.config)
	return node, cfg, err
}

// agentArgs is a command line of slurmv-agent. Without --node, slurmv-agent finds out the
// node's name itself.
func (o nodeOptions) agentArgs(command string) []string {
	args := []string{command, "--config", o.config}
	if o.node != "" {
		args = append(args, "--node", o.node)
	}
	return args
}

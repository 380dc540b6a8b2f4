package cli

import (
	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

// Node has the options that tell a command about the node that it runs on.
type Node struct {
	Config string // path of the configuration
	Name   string // in Slurm; "" if it is the host's
}

// Add adds the options to a command.
func (n *Node) Add(c *cobra.Command) {
	c.Flags().StringVar(&n.Config, "config", config.Path, "read the configuration from `file`")
	c.Flags().StringVarP(&n.Name, "node-name", "N", "", "this node's `name` in Slurm, if it is not the host's")
}

// Load returns the node's name and its configuration.
func (n Node) Load() (name string, cfg config.Config, err error) {
	if name, err = slurm.NodeName(n.Name); err != nil {
		return "", cfg, err
	}
	cfg, err = config.Load(n.Config)
	return name, cfg, err
}

// AgentArgs is a command line of slurmv-agent. Without --node, slurmv-agent finds out the
// node's name itself.
func (n Node) AgentArgs(command string) []string {
	args := []string{command, "--config", n.Config}
	if n.Name != "" {
		args = append(args, "--node", n.Name)
	}
	return args
}

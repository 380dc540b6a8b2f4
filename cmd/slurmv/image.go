package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/cache"
	"github.com/slurm-v/slurm-v/internal/cli"
)

func newImage() *cobra.Command {
	c := &cobra.Command{
		Use:   "image COMMAND",
		Short: "See the site's images, and what this node keeps of images",
		Long: `See the images of the site's catalogue (list), try an image (check), and manage what this node keeps of VM images:
copies of their files (cache, forget), and templates, which are VMs that were booted and saved
(warm, templates, drop).

Run all of these but list, check and warm as root, on the node.`,
	}
	c.AddCommand(newImageList(), newImageCheck(), newImageCache(), newImageForget(), newImageWarm(), newImageTemplates(), newImageDrop())
	return c
}

// cacheOf opens the node's cache.
func cacheOf(o cli.Node) (*cache.Cache, error) {
	node, cfg, err := o.Load()
	if err != nil {
		return nil, err
	}
	return images.Cache(cfg, node), nil
}

func newImageCache() *cobra.Command {
	var o cli.Node
	var output string
	c := &cobra.Command{
		Use:   "cache [flags]",
		Short: "List the copies of images on this node",
		Long: `List the copies of images that this node keeps for jobs (--vm-image-mode=cache): the
file, the owner, the size, the last use, and the jobs that use it now.

A copy is of a file as it was at one moment. If the file changes and is used again, it
is listed again. Only OWNER can use the copy; "everybody" stands for images of the
site's catalogue.

With --output json it prints a list of objects with the keys key, source, owner,
bytes, missing (bytes that are still to be copied), whole, used and holders.

EXIT STATUS
===========

    0   the copies are listed; there may be none
    1   the cache cannot be read
    2   the command line cannot be run`,
		Example: `  slurmv image cache
  srun -w n[1-40] slurmv image cache --output json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			return runImageCache(o, output, c.OutOrStdout())
		},
	}
	o.Add(c)
	cli.AddOutput(c, &output)
	return c
}

func runImageCache(o cli.Node, output string, out io.Writer) error {
	node, err := cacheOf(o)
	if err != nil {
		return err
	}
	all, err := node.List()
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the image cache is root's: run this as root on the node (%w)", err)
	}
	if err != nil {
		return err
	}
	if output == "json" {
		return cli.PrintJSON(out, append([]cache.Entry{}, all...))
	}
	return cache.WriteTable(out, all)
}

func newImageForget() *cobra.Command {
	var o cli.Node
	var all bool
	c := &cobra.Command{
		Use:   "forget [flags] KEY|FILE...",
		Short: "Remove copies of images that no job uses",
		Long: `Remove copies of images from this node, by the key that slurmv image cache shows or
by the path of the copied file. Copies that jobs use stay. Images are copied again
when jobs ask for them.

EXIT STATUS
===========

    0   the copies are removed; each is printed
    1   there is no such copy, or a job uses it
    2   the command line cannot be run`,
		Example: `  slurmv image forget /images/old.qcow2
  slurmv image forget --all`,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return cli.Usagef("name copies, or use --all")
			case os.Geteuid() != 0:
				return errors.New("the image cache is root's: run this as root on the node")
			}
			return runImageForget(c, o, args)
		},
	}
	o.Add(c)
	c.Flags().BoolVar(&all, "all", false, "remove all copies that no job uses")
	return c
}

// runImageForget removes the copies that args name, or all of them.
func runImageForget(c *cobra.Command, o cli.Node, args []string) error {
	node, err := cacheOf(o)
	if err != nil {
		return err
	}
	gone, err := node.Forget(c.Context(), func(e cache.Entry) bool {
		return len(args) == 0 || slices.ContainsFunc(args, func(arg string) bool { return names(arg, e) })
	})
	for _, e := range gone {
		fmt.Fprintf(c.OutOrStdout(), "%s, %d MiB\n", e.Source, e.Bytes>>20)
	}
	for _, arg := range args {
		if !slices.ContainsFunc(gone, func(e cache.Entry) bool { return names(arg, e) }) {
			err = errors.Join(err, fmt.Errorf("%s: this node has no copy of it, or a job uses the copy", arg))
		}
	}
	return err
}

// leastKey is the least number of digits by which a key can be named.
const leastKey = 8

func names(arg string, e cache.Entry) bool {
	return arg == e.Source || len(arg) >= leastKey && strings.HasPrefix(string(e.Key), arg)
}

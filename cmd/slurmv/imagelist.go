package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// A listedImage is an image of the site's catalogue as the caller sees it.
type listedImage struct {
	Name     string          `json:"name"`
	Default  bool            `json:"default"` // jobs have it that name no image
	Path     string          `json:"path"`
	Format   string          `json:"format,omitempty"`
	Bytes    int64           `json:"bytes,omitempty"` // of the disk that a VM sees
	Firmware config.Firmware `json:"firmware,omitempty"`
	Error    string          `json:"error,omitempty"` // why the caller cannot use it here; "" if they can
}

func newImageList() *cobra.Command {
	var path, output string
	c := &cobra.Command{
		Use:   "list [flags]",
		Short: "List the images of the site's catalogue",
		Long: `List the images that --vm-image can name: the format, the size of the disk, the firmware
that boots it, and the file. A star marks that of jobs which name none. An image that you cannot use
has a reason instead. It is looked at on this host, as yourself; a job looks at it on its nodes.

With --output json it prints a list of objects with the keys name, default, path, format, bytes,
firmware and error.

EXIT STATUS
===========

    0   they are listed; there may be none
    1   the configuration cannot be read
    2   the command line cannot be run`,
		Example: `  slurmv image list
  srun slurmv image list --output json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			return runImageList(c.Context(), path, output, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	cli.AddOutput(c, &output)
	return c
}

func runImageList(ctx context.Context, path, output string, out io.Writer) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	me, err := owner.Lookup(uint32(os.Geteuid()), uint32(os.Getegid()))
	if err != nil {
		return err
	}
	all := []listedImage{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Images.Catalogue)) {
		all = append(all, lookAt(ctx, cfg, name, me))
	}
	if output == "json" {
		return cli.PrintJSON(out, all)
	}
	return printImages(out, all)
}

// lookAt looks at an image of the catalogue as a job of the caller's would.
func lookAt(ctx context.Context, cfg config.Config, name string, me owner.Owner) listedImage {
	image := listedImage{Name: name, Default: name == cfg.Defaults.Image, Path: cfg.Images.Catalogue[name].Path}
	info, err := images.Inspect(ctx, cfg.Images, image.Path, me)
	if err == nil {
		image.Format, image.Bytes = info.Format, info.VirtualBytes
		image.Firmware = images.WantedFirmware(cfg.Images, image.Path, config.FirmwareAuto)
	}
	if image.Firmware == config.FirmwareAuto {
		image.Firmware = info.Firmware
	}
	var fault *images.Error
	switch {
	case errors.As(err, &fault):
		image.Error = fault.Reason
	case err != nil:
		image.Error = err.Error()
	}
	return image
}

func printImages(out io.Writer, all []listedImage) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tFORMAT\tSIZE\tFIRMWARE\tIMAGE")
	for _, i := range all {
		name, size, file := i.Name, "-", i.Path
		if i.Default {
			name += " *"
		}
		if i.Bytes > 0 {
			size = fmt.Sprintf("%d MiB", i.Bytes>>20)
		}
		if i.Error != "" {
			file += " " + i.Error
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, cmp.Or(i.Format, "-"), size, cmp.Or(string(i.Firmware), "-"), file)
	}
	return t.Flush()
}

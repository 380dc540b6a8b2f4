//go:build cluster

package test

import (
	"strings"
	"testing"
)

// Debian as its own cloud images are, with nothing of Slurm-V in it, runs an example as it stands, in its working
// directory: by each firmware, cold and from a template, and with the root on a logical volume, which grows with the disk.
func TestStockCloudImage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ image, options string }{
		"by UEFI":         {"--firmware uefi", "--vm-start=cold"},
		"by BIOS":         {"--firmware bios", "--vm-start=cold"},
		"from a template": {"--firmware uefi", "--vm-start=warm"},
		"on LVM":          {"--firmware uefi --lvm", "--vm-start=cold --disk-size=3G"},
	} {
		t.Run(name, func(t *testing.T) {
			image := output(t, "../scripts/cloud-image", strings.Fields(tt.image)...)
			defer dropTemplates(t, image, "n1")
			options := "--nodes=1 --nodelist=n1 --vm-per-node=4 --memory-per-vm=1G --time=90 --vm-image=" + image + " " + tt.options
			script := example(t, "hello-mpi.sbatch") + "\nslurm-v-run -Q -n 1 --mpi=none sh -c 'df --output=source /; echo disk $(df -BM --output=size / | tail -1)'\n"
			out := alice.submitExample(t, "hello-mpi", options, script).completes()
			contains(t, out, "rank 7 of 8 runs in vm3 on node n1\n", "the ranks add up to 28, which is right\n")
			if strings.Contains(tt.image, "--lvm") {
				contains(t, out, "/dev/mapper/cloud-root")
				checkDisk(t, out)
			}
		})
	}
}

// dropTemplates removes a node's templates of an image.
func dropTemplates(t *testing.T, image, node string) {
	t.Helper()
	root.run(t, "slurmv image drop -N $SLURMD_NODENAME $(slurmv image templates -N $SLURMD_NODENAME | grep "+image+" | cut -d' ' -f1)", "--node", node)
}

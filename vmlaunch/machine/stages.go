package machine

// The stages that the VMs of a node share. The stages of a single VM are where it enters
// them.
const (
	StageQueue    = "queue"    // until the node begins, which is Slurm's
	StagePlan     = "plan"     // check the request, decide, open the journal
	StageImage    = "image"    // find the image, and have it on the node
	StageVF       = "vf"       // lease and set the virtual functions
	StageTaps     = "taps"     // make the job's bridge and taps
	StageLibvirt  = "libvirt"  // open libvirt's driver, which may have to find out about QEMU
	StageIVShmem  = "ivshmem"  // allocate the shared memory
	StageTemplate = "template" // look for a template, and make one where there is none
	StageNetwork  = "network"  // until the VMs of all nodes know each other
)

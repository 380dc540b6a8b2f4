package nodeagent

// The stages that the VMs of a node share. Several go on at once, and the node's
// record has each of them once.
const (
	StageQueue    = "queue"    // until the launch begins on the node; the time is Slurm's
	StagePlan     = "plan"     // check the request, decide, open the journal
	StageImage    = "image"    // find the image, and have it on the node
	StageVF       = "vf"       // lease and set the virtual functions
	StageTaps     = "taps"     // make the job's bridge and taps
	StageLibvirt  = "libvirt"  // open libvirt's driver, which may have to find out about QEMU
	StageTemplate = "template" // find a template to restore the VMs from, or make it
	StageIVShmem  = "ivshmem"  // allocate the shared memory
	StageNetwork  = "network"  // until the VMs of all nodes know each other
)

// The stages of a single VM. One follows another.
const (
	StageWait    = "wait"    // until it is the VM's turn
	StageDisk    = "disk"    // make its overlay and seed disk
	StageDefine  = "define"  // describe it to libvirt
	StageStart   = "start"   // start QEMU
	StageBoot    = "boot"    // until its guest agent answers
	StageRestore = "restore" // the same, from a template
	StageAgent   = "agent"   // the guest agent sets up users, mounts, devices, addresses
)

// StageSave is for the VM that becomes a template: it is made ready and saved. Users see
// it while they wait; the record has StageTemplate.
const StageSave = "save"

// The states of a VM that is in no stage of its launch.
const (
	StateReady  = "ready"
	StateFailed = "failed" // it did not come up
	StateOff    = "off"    // it has ended
)

// Stages are those that a record can have: the stages that VMs share, and those of a VM.
var Stages = []string{
	StageQueue, StagePlan, StageImage, StageVF, StageTaps, StageLibvirt, StageTemplate, StageIVShmem, StageNetwork,
	StageWait, StageDisk, StageDefine, StageStart, StageBoot, StageRestore, StageAgent,
}

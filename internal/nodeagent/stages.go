package nodeagent

// The stages that the VMs of a node share. They can overlap, and the node's record has
// each of them once.
const (
	StageQueue    = "queue"    // until the launch begins on the node; Slurm gives the time of the request
	StagePlan     = "plan"     // check the request, decide, open the journal
	StageImage    = "image"    // find the image, and copy it to the node if need be
	StageVF       = "vf"       // lease and set the virtual functions
	StageTaps     = "taps"     // make the job's bridge and taps
	StageLibvirt  = "libvirt"  // open libvirt's driver, which may first have to examine QEMU
	StageTemplate = "template" // find a template to restore the VMs from, or make one
	StageIVShmem  = "ivshmem"  // allocate the shared memory
	StageNetwork  = "network"  // until the VMs of all nodes know each other
)

// The stages of a single VM, one after another.
const (
	StageWait    = "wait"    // until it is the VM's turn
	StageDisk    = "disk"    // make its overlay and seed disk
	StageDefine  = "define"  // describe it to libvirt
	StageStart   = "start"   // start QEMU
	StageBoot    = "boot"    // until its guest agent answers
	StageRestore = "restore" // restore the VM from a template, until its guest agent answers
	StageAgent   = "agent"   // the guest agent sets up users, mounts, devices, addresses
)

// StageSave is the stage in which a node prepares and saves a VM as a template. slurmv ps
// shows it meanwhile; the record has StageTemplate.
const StageSave = "save"

// The states of a VM outside of its launch.
const (
	StateReady  = "ready"
	StateFailed = "failed" // it did not become ready
	StateOff    = "off"    // it has ended
)

// Stages are the stages that a record can have: shared ones, then those of a single VM.
var Stages = []string{
	StageQueue, StagePlan, StageImage, StageVF, StageTaps, StageLibvirt, StageTemplate, StageIVShmem, StageNetwork,
	StageWait, StageDisk, StageDefine, StageStart, StageBoot, StageRestore, StageAgent,
}

package plan

import "github.com/slurm-v/slurm-v/config"

// mostQueues bounds the queues of a NIC. Each has a thread of the kernel (vhost), and these
// have the CPUs of QEMU's own threads.
const mostQueues = 8

// Queues is how many queues a VM's NIC has: one for each vCPU, so that vCPUs do not wait for
// each other when they send, and their interrupts go to all of them. Only the kernel serves
// several queues at the same time. Without it a single thread of QEMU would serve them one
// after the other.
func (p Plan) Queues() int {
	if p.Hardware.Accel != config.AccelKVM || !p.Hardware.Vhost {
		return 1
	}
	return min(p.Job.Spec.VCPUs, mostQueues)
}

package plan

// FirmwareHole is how much address space q35 sets aside for devices above the VM's memory
// without being told to, in MiB.
const FirmwareHole = 32 << 10

// PCIHole is how much address space the devices need above the VM's memory, in MiB; 0 if
// FirmwareHole is enough.
func (p Plan) PCIHole() int64 {
	if p.NVDIMM {
		return 0
	}
	if hole := 2 * int64(p.Job.Spec.IVShmem.Devices) * p.Job.Spec.IVShmem.SizeMiB; hole > FirmwareHole {
		return hole
	}
	return 0
}

// TemplateRoom is how much shared memory a template boots with, in MiB. It is the most that
// a VM restored from the template can have. See [Plan.PCIHole].
const TemplateRoom = FirmwareHole / 2

// SharedMiB is how much shared memory each of the job's VMs has, in MiB.
func (p Plan) SharedMiB() int64 {
	return int64(p.Job.Spec.IVShmem.Devices) * p.Job.Spec.IVShmem.SizeMiB
}

// RegionSize is the size of each of the job's regions of shared memory, in bytes.
func (p Plan) RegionSize() int64 { return p.Job.Spec.IVShmem.SizeMiB << 20 }

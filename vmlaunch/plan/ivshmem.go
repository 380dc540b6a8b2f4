package plan

// firmwareHole is how much address space q35 sets aside for devices above the VM's memory
// without being told to, in MiB.
const firmwareHole = 32 << 10

// PCIHole is how much address space the devices need above the VM's memory, in MiB; 0 if
// firmwareHole is enough.
func (p Plan) PCIHole() int64 {
	if p.NVDIMM {
		return 0
	}
	if hole := 2 * p.Job.Spec.IVShmem.AllMiB(); hole > firmwareHole {
		return hole
	}
	return 0
}

// TemplateRoom is how much shared memory a template boots with, in MiB. It is the most that
// a VM restored from the template can have. See [Plan.PCIHole].
const TemplateRoom = firmwareHole / 2

// RegionSize is the size of each of the job's regions of shared memory, in bytes.
func (p Plan) RegionSize() int64 { return p.Job.Spec.IVShmem.SizeMiB << 20 }

package hypervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"

	"libvirt.org/go/libvirt"

	"github.com/slurm-v/slurm-v/ivshmem"
)

// nvdimmSlots makes room for NVDIMMs that are plugged into the running VM: QEMU's options, if it is to have some.
//
// libvirt could describe NVDIMMs, but not together with memory that is mapped from a template: it wants the VM's memory
// to be that of a NUMA node then, and makes that memory itself.
func (p describer) nvdimmSlots() []string {
	shared := p.Job.Spec.IVShmem
	if !p.NVDIMM || shared.Devices == 0 {
		return nil
	}
	each := ivshmem.Region{Size: shared.SizeMiB << 20}.OnNVDIMM().FileSize() >> 20
	most := p.Job.Spec.MemoryMiB + int64(shared.Devices)*each
	return []string{"-machine", "nvdimm=on", "-m", fmt.Sprintf("slots=%d,maxmem=%dM", shared.Devices, most)}
}

// plugNVDIMM plugs a region into a running VM that has slots.
func (d *Domain) plugNVDIMM(r ivshmem.Region) error {
	memory, device := "slurmv-memory"+strconv.Itoa(r.Index), "slurmv-nvdimm"+strconv.Itoa(r.Index)
	err := d.monitor("object-add", map[string]any{
		"qom-type": "memory-backend-file", "id": memory, "mem-path": filepath.Join(ivshmem.Dir, r.Name), "size": r.FileSize(), "share": true,
	})
	if err == nil {
		err = d.monitor("device_add", map[string]any{"driver": "nvdimm", "id": device, "memdev": memory})
	}
	return err
}

// monitor gives the VM's QEMU a command of its monitor (QMP).
func (d *Domain) monitor(command string, arguments map[string]any) error {
	text, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return err
	}
	answer, err := d.vm.QemuMonitorCommand(string(text), libvirt.DOMAIN_QEMU_MONITOR_COMMAND_DEFAULT)
	if err != nil {
		return plain(err)
	}
	var said struct {
		Error struct{ Desc string }
	}
	if err := json.Unmarshal([]byte(answer), &said); err != nil {
		return fmt.Errorf("QEMU's answer to %s: %w", command, err)
	}
	if said.Error.Desc != "" {
		return fmt.Errorf("QEMU refuses %s: %s", command, said.Error.Desc)
	}
	return nil
}

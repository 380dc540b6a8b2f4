package fabric

import (
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A GUID names a port or a node of an InfiniBand fabric (EUI-64). No port has the zero GUID.
//
// The VFs of jobs have GUIDs that every node, the controller and the subnet manager's host can
// compute, from the most significant bit on:
//
//	bits   content
//	12     0x025 for ports, 0x026 for nodes: locally administered, of one device (EUI-64's bits U/L and I/G)
//	32     the job's number
//	14     the VM's number in the job
//	 6     the VF's index in the VM
//
// The restart count of the job is not in it: a requeued job has the same GUIDs on other nodes.
// Two clusters whose jobs have the same numbers cannot share a fabric, unless they are a
// federation, in which Slurm keeps the numbers apart.
type GUID uint64

// Bits of a GUID of a VF.
const (
	vmBits, vfBits = 14, 6

	portPrefix = GUID(0x025) << 52
	nodePrefix = GUID(0x026) << 52
	prefixMask = GUID(0xfff) << 52
)

// PortGUID returns the GUID of the port of a VF. vm is the VM's number in the job, 0 to 16383,
// and vf is the VF's index in the VM, 0 to 63. For others it returns 0.
func PortGUID(job uint32, vm, vf int) GUID { return guidOf(portPrefix, job, vm, vf) }

// NodeGUID is [PortGUID] for the node, which is the whole VF.
func NodeGUID(job uint32, vm, vf int) GUID { return guidOf(nodePrefix, job, vm, vf) }

// guidOf returns 0 for what the bits have no room for: it would be another VF's GUID.
func guidOf(prefix GUID, job uint32, vm, vf int) GUID {
	if vm < 0 || vm >= 1<<vmBits || vf < 0 || vf >= 1<<vfBits {
		return 0
	}
	return prefix | GUID(job)<<(vmBits+vfBits) | GUID(vm)<<vfBits | GUID(vf)
}

// OfVF reports whether it is the GUID of the port of a job's VF.
func (g GUID) OfVF() bool { return g&prefixMask == portPrefix }

// String returns the GUID as ip-link(8) takes it: "02:50:00:01:07:90:00:81".
func (g GUID) String() string {
	return net.HardwareAddr(binary.BigEndian.AppendUint64(nil, uint64(g))).String()
}

// Hex returns the GUID as OpenSM, UFM and InfiniBand's diagnostics write it: "0x0250000107900081".
func (g GUID) Hex() string { return fmt.Sprintf("%#016x", uint64(g)) }

// ParseGUID reads what [GUID.String] and [GUID.Hex] write. Leading zeros, and 0x, may be missing.
func ParseGUID(text string) (GUID, error) {
	if strings.Contains(text, ":") {
		address, err := net.ParseMAC(text)
		if err != nil || len(address) != 8 {
			return 0, fmt.Errorf("%.40q is not a GUID of eight bytes", text)
		}
		return GUID(binary.BigEndian.Uint64(address)), nil
	}
	g, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a GUID, such as 0x0250000107900081", text)
	}
	return GUID(g), nil
}

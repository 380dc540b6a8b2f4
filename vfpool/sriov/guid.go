package sriov

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

const (
	// zeroGUID is what the kernel reports of a VF that was never given a GUID. It cannot be
	// set.
	zeroGUID = "00:00:00:00:00:00:00:00"
	// noGUID stands for zeroGUID afterwards: the port of such a VF stays down.
	noGUID = "ff:ff:ff:ff:ff:ff:ff:ff"
)

// restorable returns settings that can be set. Where the VF had no GUID, or the kernel does
// not report it, that is noGUID: the job's GUIDs may come up on another node.
func (o setter) restorable(s device.Settings) device.Settings {
	if !o.pf.Caps.GUID {
		return s
	}
	for _, guid := range []*string{&s.NodeGUID, &s.PortGUID} {
		if *guid == "" || *guid == zeroGUID {
			*guid = noGUID
		}
	}
	return s
}

// sameGUID is true where the kernel does not report GUIDs.
func sameGUID(want, got string) bool {
	return want == "" || got == "" || strings.EqualFold(want, got) || want == noGUID && got == zeroGUID
}

func parseGUID(text string) (net.HardwareAddr, error) {
	guid, err := net.ParseMAC(text)
	if err != nil || len(guid) != 8 {
		return nil, fmt.Errorf("%.40q is not a GUID: %w", text, unix.EINVAL)
	}
	return guid, nil
}

func textOfGUID(guid uint64) string {
	return net.HardwareAddr(binary.BigEndian.AppendUint64(nil, guid)).String()
}

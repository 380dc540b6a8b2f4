package sriov

import (
	"encoding/binary"
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// An attr is one netlink attribute.
type attr struct {
	kind  uint16
	value []byte
}

// nextAttr cuts the first attribute off data.
func nextAttr(data []byte) (a attr, rest []byte, ok bool) {
	if len(data) < unix.SizeofRtAttr {
		return attr{}, nil, false
	}
	length := int(binary.NativeEndian.Uint16(data))
	if length < unix.SizeofRtAttr || length > len(data) {
		return attr{}, nil, false
	}
	kind := binary.NativeEndian.Uint16(data[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	aligned := min((length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(data))
	return attr{kind, data[unix.SizeofRtAttr:length]}, data[aligned:], true
}

// parseLink returns the settings of the VFs in a link message, by their number.
func parseLink(message []byte) map[int]device.Settings {
	if len(message) < unix.SizeofIfInfomsg {
		return nil
	}
	for data := message[unix.SizeofIfInfomsg:]; len(data) >= unix.SizeofRtAttr; {
		// The list's own length has only 16 bits and is wrong if the list is longer, so
		// the list is read to the end of its content.
		if kind := binary.NativeEndian.Uint16(data[2:]) &^ unix.NLA_F_NESTED; kind == unix.IFLA_VFINFO_LIST {
			return parseVFs(data[unix.SizeofRtAttr:])
		}
		_, rest, ok := nextAttr(data)
		if !ok {
			break
		}
		data = rest
	}
	return nil
}

func parseVFs(data []byte) map[int]device.Settings {
	vfs := map[int]device.Settings{}
	for {
		a, rest, ok := nextAttr(data)
		if !ok || a.kind != nl.IFLA_VF_INFO {
			return vfs
		}
		if vf, s, ok := parseVF(a.value); ok {
			vfs[vf] = s
		}
		data = rest
	}
}

// parseVF reads the attributes of one VF. Each attribute begins with the VF's number.
func parseVF(data []byte) (vf int, s device.Settings, ok bool) {
	s.Link = device.LinkAuto
	for len(data) > 0 {
		a, rest, more := nextAttr(data)
		if !more {
			break
		}
		if len(a.value) >= 8 && parseVFAttr(a, &s) {
			vf, ok = int(binary.NativeEndian.Uint32(a.value)), true
		}
		data = rest
	}
	return vf, s, ok
}

// parseVFAttr stores a in s. It reports whether a is one of the settings of a VF.
func parseVFAttr(a attr, s *device.Settings) bool {
	value := binary.NativeEndian.Uint32(a.value[4:])
	switch a.kind {
	case nl.IFLA_VF_MAC:
		if len(a.value) < 10 {
			return false
		}
		s.MAC = net.HardwareAddr(a.value[4:10]).String()
	case nl.IFLA_VF_VLAN:
		s.VLAN = uint16(value)
		s.QoS = uint8(third(a))
	case nl.IFLA_VF_RATE:
		s.MinRate, s.MaxRate = value, third(a)
	case nl.IFLA_VF_SPOOFCHK:
		s.SpoofCheck = value == 1 // all bits are set if the driver does not report it
	case nl.IFLA_VF_TRUST:
		s.Trust = value == 1
	case nl.IFLA_VF_LINK_STATE:
		s.Link = linkStateOf(value)
	case nl.IFLA_VF_IB_NODE_GUID:
		s.NodeGUID = guidOf(a)
	case nl.IFLA_VF_IB_PORT_GUID:
		s.PortGUID = guidOf(a)
	default:
		return false
	}
	return true
}

// third returns the number after the VF's number and the first value.
func third(a attr) uint32 {
	if len(a.value) < 12 {
		return 0
	}
	return binary.NativeEndian.Uint32(a.value[8:])
}

// guidOf reads struct ifla_vf_guid: the VF's number, padding, and the GUID as a number. Kernels
// before 5.5 do not send it.
func guidOf(a attr) string {
	if len(a.value) < 16 {
		return ""
	}
	return textOfGUID(binary.NativeEndian.Uint64(a.value[8:]))
}

func linkStateOf(value uint32) device.LinkState {
	switch value {
	case nl.IFLA_VF_LINK_STATE_ENABLE:
		return device.LinkEnable
	case nl.IFLA_VF_LINK_STATE_DISABLE:
		return device.LinkDisable
	default:
		return device.LinkAuto
	}
}

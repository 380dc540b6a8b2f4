package cxi

// #include "libcxi.h"
import "C"

import (
	"slices"
	"unsafe"

	"github.com/slurm-v/slurm-v/fabric"
)

// kinds are the member types of the driver, by their numbers.
var kinds = [...]MemberKind{C.CXI_NOBODY: "", C.CXI_UID: UID, C.CXI_GID: GID, C.CXI_NETNS: NetNS}

// deviceAt returns an entry of a list, which has no Go type since it ends in an array of
// any length.
func deviceAt(list *C.struct_cxi_devices, i int) *C.struct_cxi_device {
	first := unsafe.Add(unsafe.Pointer(list), unsafe.Sizeof(uint64(0)))
	return (*C.struct_cxi_device)(unsafe.Add(first, i*C.sizeof_struct_cxi_device))
}

func serviceAt(list *C.struct_cxi_services, i int) *C.struct_cxi_service {
	first := unsafe.Add(unsafe.Pointer(list), unsafe.Sizeof(uint32(0)))
	return (*C.struct_cxi_service)(unsafe.Add(first, i*C.sizeof_struct_cxi_service))
}

func toDevice(d *C.struct_cxi_device) Device {
	name := C.GoStringN(&d.name[0], C.CXI_NAME)
	if end := slices.Index([]byte(name), 0); end >= 0 {
		name = name[:end]
	}
	return Device{ID: uint32(d.id), Name: name, Has: Amounts{
		PTE: uint16(d.ptes), TXQ: uint16(d.txqs), TGQ: uint16(d.tgqs), EQ: uint16(d.eqs),
		CT: uint16(d.cts), LE: uint16(d.les), TLE: uint16(d.tles), AC: uint16(d.acs),
	}}
}

func amounts(from [numResources]C.uint16_t) (to Amounts) {
	for r, n := range from {
		to[r] = uint16(n)
	}
	return to
}

func toReport(why C.struct_cxi_report) report {
	return report{
		available:    amounts(why.available),
		noLEPools:    bool(why.no_le_pools),
		noTLEPools:   bool(why.no_tle_pools),
		noCounterSet: bool(why.no_counter_pools),
	}
}

func toService(d *C.struct_cxi_service) Service {
	s := Service{ID: uint32(d.id), System: d.flags&C.CXI_SYSTEM != 0, Enabled: d.flags&C.CXI_ENABLED != 0}
	if d.flags&C.CXI_RESTRICTED_MEMBERS != 0 {
		s.Members = toMembers(d)
	}
	if d.flags&C.CXI_RESTRICTED_VNIS != 0 {
		s.VNIs = []fabric.Tag{}
		for _, vni := range d.vni[:min(int(d.vnis), len(d.vni))] {
			s.VNIs = append(s.VNIs, fabric.Tag(vni))
		}
	}
	if d.flags&C.CXI_RESTRICTED_CLASSES != 0 {
		s.Classes = toClasses(d)
	}
	if d.flags&C.CXI_LIMITED != 0 {
		s.Limits = new(Limits)
		for r, limit := range d.limit {
			s.Limits[r] = Limit{Reserved: uint16(limit.reserved), Max: uint16(limit.max)}
		}
	}
	return s
}

func toMembers(d *C.struct_cxi_service) []Member {
	members := []Member{}
	for _, m := range d.member {
		switch {
		case m._type == C.CXI_NOBODY:
		case int(m._type) < len(kinds):
			members = append(members, Member{kinds[m._type], uint32(m.id)})
		default: // nobody's that this package knows, so nobody destroys the service
			members = append(members, Member{"unknown", uint32(m.id)})
		}
	}
	return members
}

// toClasses leaves out the class that only Ethernet has.
func toClasses(d *C.struct_cxi_service) []fabric.Class {
	classes := []fabric.Class{}
	for i, class := range fabric.Classes {
		if d.class[i] {
			classes = append(classes, class)
		}
	}
	return classes
}

// fromService returns what the driver is asked for. What is nil in s is not restricted.
func fromService(s Service) (d C.struct_cxi_service) {
	set := func(bit C.uint8_t, on bool) {
		if on {
			d.flags |= bit
		}
	}
	set(C.CXI_SYSTEM, s.System)
	set(C.CXI_ENABLED, s.Enabled)
	set(C.CXI_RESTRICTED_MEMBERS, s.Members != nil)
	set(C.CXI_RESTRICTED_VNIS, s.VNIs != nil)
	set(C.CXI_RESTRICTED_CLASSES, s.Classes != nil)
	set(C.CXI_LIMITED, s.Limits != nil)
	for i, m := range s.Members {
		d.member[i] = C.struct_cxi_member{id: C.uint32_t(m.ID), _type: C.uint32_t(slices.Index(kinds[:], m.Kind))}
	}
	for i, vni := range s.VNIs {
		d.vni[i] = C.uint16_t(vni)
	}
	d.vnis = C.uint8_t(len(s.VNIs))
	for _, class := range s.Classes {
		d.class[slices.Index(fabric.Classes, class)] = true
	}
	if s.Limits != nil {
		for r, limit := range s.Limits {
			d.limit[r] = C.struct_cxi_limit{max: C.uint16_t(limit.Max), reserved: C.uint16_t(limit.Reserved)}
		}
	}
	return d
}

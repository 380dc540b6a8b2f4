package sriov

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// encode returns one attribute as the kernel writes it. The length has only 16 bits:
// higher bits are lost.
func encode(kind uint16, values ...[]byte) []byte {
	var value []byte
	for _, v := range values {
		value = append(value, v...)
	}
	a := binary.NativeEndian.AppendUint16(nil, uint16(len(value)+unix.SizeofRtAttr))
	a = append(binary.NativeEndian.AppendUint16(a, kind), value...)
	for len(a)%unix.NLA_ALIGNTO != 0 {
		a = append(a, 0)
	}
	return a
}

func words(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

// vfInfo returns what the kernel sends of a VF: its settings, and padding bytes in an
// attribute that is not read.
func vfInfo(vf uint32, padding int) []byte {
	mac := append(words(vf), make([]byte, 32)...)
	copy(mac[4:], []byte{2, 0, 0, 0, 0, byte(vf)})
	return encode(nl.IFLA_VF_INFO|unix.NLA_F_NESTED,
		encode(nl.IFLA_VF_MAC, mac),
		encode(nl.IFLA_VF_VLAN, words(vf, 100+vf, 5)),
		encode(nl.IFLA_VF_RATE, words(vf, 10, 20)),
		encode(nl.IFLA_VF_SPOOFCHK, words(vf, 1)),
		encode(nl.IFLA_VF_LINK_STATE, words(vf, nl.IFLA_VF_LINK_STATE_DISABLE)),
		encode(nl.IFLA_VF_TRUST, words(vf, 0xffffffff)), // the driver does not report it
		encode(nl.IFLA_VF_IB_NODE_GUID, guidInfo(vf, 0x0260000107900080)),
		encode(nl.IFLA_VF_IB_PORT_GUID, guidInfo(vf, 0x0250000107900080)),
		encode(nl.IFLA_VF_STATS|unix.NLA_F_NESTED, encode(0, make([]byte, padding))),
	)
}

// guidInfo is a struct ifla_vf_guid.
func guidInfo(vf uint32, guid uint64) []byte {
	return binary.NativeEndian.AppendUint64(words(vf, 0), guid+uint64(vf))
}

func newLink(vfs ...[]byte) []byte {
	message := make([]byte, unix.SizeofIfInfomsg)
	message = append(message, encode(unix.IFLA_IFNAME, []byte("eth0\x00"))...)
	message = append(message, encode(unix.IFLA_VFINFO_LIST, vfs...)...)
	return append(message, encode(unix.IFLA_AF_SPEC, words(1, 2, 3))...)
}

func settingsOf(vf uint32) device.Settings {
	mac := []string{"02:00:00:00:00:00", "02:00:00:00:00:01", "02:00:00:00:00:02"}
	return device.Settings{
		MAC: mac[vf], VLAN: uint16(100 + vf), QoS: 5, MinRate: 10, MaxRate: 20, SpoofCheck: true, Link: device.LinkDisable,
		NodeGUID: fmt.Sprintf("02:60:00:01:07:90:00:8%d", vf), PortGUID: fmt.Sprintf("02:50:00:01:07:90:00:8%d", vf),
	}
}

func TestParseLink(t *testing.T) {
	tests := map[string]struct {
		message []byte
		want    map[int]device.Settings
	}{
		"two VFs":                        {newLink(vfInfo(0, 8), vfInfo(1, 8)), map[int]device.Settings{0: settingsOf(0), 1: settingsOf(1)}},
		"one that is left out, in reset": {newLink(vfInfo(0, 8), vfInfo(2, 8)), map[int]device.Settings{0: settingsOf(0), 2: settingsOf(2)}},
		"no VFs":                         {newLink(), map[int]device.Settings{}},
		"a GUID that is cut short":       {newLink(encode(nl.IFLA_VF_INFO, encode(nl.IFLA_VF_IB_PORT_GUID, words(3, 0, 1)))), map[int]device.Settings{3: {Link: device.LinkAuto}}},
		"nothing":                        {nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, parseLink(tt.message)); diff != "" {
				t.Errorf("VFs differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A list above 64 KiB has a wrong length in its header.
func TestParseLinkWithMoreVFsThanItsLengthCanSay(t *testing.T) {
	var vfs [][]byte
	for i := range uint32(300) {
		vfs = append(vfs, vfInfo(i, 120))
	}
	message := newLink(vfs...)
	if len(message) <= 1<<16 {
		t.Fatalf("the message has %d bytes only", len(message))
	}
	got := parseLink(message)
	if len(got) != 300 || got[299].VLAN != 399 {
		t.Errorf("%d VFs, the last %+v", len(got), got[299])
	}
}

func FuzzParseLink(f *testing.F) {
	f.Add(newLink(vfInfo(0, 8), vfInfo(1, 0)))
	f.Add(newLink()[:20])
	f.Fuzz(func(t *testing.T, message []byte) {
		for vf, s := range parseLink(message) {
			if vf < 0 || s.Link == "" {
				t.Errorf("VF %d: %+v", vf, s)
			}
		}
	})
}

func TestNetlinkOfInterfacesWithoutVFs(t *testing.T) {
	tests := map[string]struct {
		pf   string
		want error
	}{
		"the loopback has none":       {"lo", unix.EAGAIN},
		"an interface that is absent": {"slurmv-absent", unix.ENODEV},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Netlink().Settings(tt.pf, 0); !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
	if err := Netlink().Set("lo", 0, VLAN, device.Settings{}); !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EPERM) {
		t.Errorf("set: %v", err)
	}
	if Netlink().Switchdev("0000:ff:1f.7") {
		t.Error("a card that is not there is in switchdev mode")
	}
}

func TestAnAnswerThatIsAnError(t *testing.T) {
	errno := int32(-int(unix.EMSGSIZE))
	message := append(words(20, unix.NLMSG_ERROR, 0, 0), words(uint32(errno))...)
	if _, err := payload(message); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("error = %v", err)
	}
	if _, err := payload(message[:18]); !errors.Is(err, unix.EBADMSG) {
		t.Errorf("error = %v", err)
	}
}

func TestKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "12")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	me := owner.IDs{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	err := errors.Join(kernel{}.Write(path, ""), kernel{}.SetOwner(path, me, 0o600), kernel{}.Free(path))
	if err != nil {
		t.Fatal(err)
	}
	account, mode, err := kernel{}.Owner(path)
	if err != nil || account != me || mode != 0o600 {
		t.Errorf("owner %v, mode %04o, %v", account, mode, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "\n" {
		t.Errorf("an empty value is written as %q, %v", text, err)
	}
	if err := (kernel{}).Write(path+"x", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that sysfs has not: %v", err)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]uint32{"100 Gb/sec (4X EDR)": 100000, "2.5 Gb/sec (1X SDR)": 2500, "": 0, "fast": 0, "-1 Gb/sec": 0} {
		if got := parseRate(text); got != want {
			t.Errorf("%q is %d Mb/s, want %d", text, got, want)
		}
	}
}

package sriov

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A PF of mlx4 on InfiniBand gives VFs their P_Keys and GUIDs itself, by files in the directory
// iov of its InfiniBand device (Linux, drivers/infiniband/hw/mlx4/sysfs.c):
//
//	iov/VF/ports/PORT/pkey_idx/INDEX   which P_Key of the port is the VF's: its index, or none
//	iov/VF/ports/PORT/gid_idx/0        the VF's number in the next two
//	iov/ports/PORT/admin_guids/NUMBER  the port GUID of the VF; 0 lets the subnet manager choose
//	iov/ports/PORT/pkeys/INDEX         the P_Keys of the port, which the subnet manager writes
//
// The VF's partitions are a part of those of the port, and the card enforces that.

// noKeys is the PKeyMap of a VF without P_Keys.
const noKeys = "none"

// iov returns the path of a file below iov.
func (o setter) iov(elements ...string) string {
	dir := o.sys.device(o.pf.PCI) + "/infiniband"
	names := append(o.sys.list(dir), "none")
	return filepath.Join(append([]string{dir, names[0], "iov"}, elements...)...)
}

// ofVF returns a file of the VF. The directory's name looks like the VF's PCI address, but has
// the device's number in decimal.
func (o setter) ofVF(elements ...string) string {
	number := o.vf.Index + 1 // 0 is the PF
	name := fmt.Sprintf("%.8s%02d.%d", o.pf.PCI, number/8, number%8)
	return o.iov(append([]string{name, "ports"}, elements...)...)
}

// port returns the port of the PF's network interface.
func (o setter) port() string {
	return strconv.Itoa(o.sys.number(0, o.sys.device(o.pf.PCI), "net", o.pf.Name, "dev_port") + 1)
}

// guidFile returns the file with the VF's port GUID.
func (o setter) guidFile() string {
	number := o.sys.number(o.vf.Index+1, o.ofVF(o.port(), "gid_idx", "0"))
	return o.iov("ports", o.port(), "admin_guids", strconv.Itoa(number))
}

// readTables returns what the files say. They may stay when the VF goes.
func (o setter) readTables() (device.Settings, error) {
	if o.gone() {
		return device.Settings{}, ErrGone
	}
	s := device.Settings{Link: device.LinkAuto, PKeyMap: noKeys}
	if guid, err := strconv.ParseUint(o.sys.text(o.guidFile()), 16, 64); err == nil {
		s.PortGUID = textOfGUID(guid)
	}
	var keys []string
	_ = o.eachKey(func(place, path string) error {
		if key := o.sys.text(path); key != noKeys && key != "" {
			keys = append(keys, place+"="+key)
		}
		return nil
	})
	if keys != nil {
		s.PKeyMap = strings.Join(keys, " ")
	}
	return s, nil
}

// eachKey calls f for each place of the VF's P_Key tables, "1/0", with its file, in order.
func (o setter) eachKey(f func(place, path string) error) error {
	var errs []error
	for _, port := range o.numbers(o.ofVF()) {
		for _, index := range o.numbers(o.ofVF(port, "pkey_idx")) {
			errs = append(errs, f(port+"/"+index, o.ofVF(port, "pkey_idx", index)))
		}
	}
	return errors.Join(errs...)
}

// numbers lists a directory whose names are numbers.
func (o setter) numbers(dir string) []string {
	names := o.sys.list(dir)
	slices.SortFunc(names, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
	return names
}

// tellTables writes one attribute.
func (o setter) tellTables(ctx context.Context, a Attribute, s device.Settings) error {
	if a == PortGUID {
		guid, err := parseGUID(s.PortGUID)
		if err != nil {
			return o.fail(string(a), s.PortGUID, err, "")
		}
		return o.write(ctx, string(a), o.guidFile(), fmt.Sprintf("%#x", binary.BigEndian.Uint64(guid)))
	}
	want := parseMap(s.PKeyMap)
	return o.eachKey(func(place, path string) error {
		key, ok := want[place]
		if !ok {
			key = noKeys
		}
		if o.sys.text(path) == key {
			return nil
		}
		return o.write(ctx, string(a), path, key)
	})
}

// parseMap returns the port's index for each place of a PKeyMap.
func parseMap(text string) map[string]string {
	keys := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		if place, key, ok := strings.Cut(word, "="); ok {
			keys[place] = key
		}
	}
	return keys
}

// The default partition, whose P_Key everybody has who talks to the subnet manager.
const (
	fullDefault    = 0xffff
	limitedDefault = 0x7fff
)

// chooseKeys turns the wish for a P_Key into a PKeyMap. The job's P_Key comes first, since
// IPoIB uses the first, and then that of the default partition. The VF has no other P_Key, on
// no port.
func (o setter) chooseKeys(ctx context.Context, want device.Settings) (device.Settings, error) {
	if !o.pf.Caps.PKeyIndex || want.PKey == 0 {
		return want, nil
	}
	err := o.retry(ctx, func() (err error) {
		want.PKeyMap, err = o.mapOf(want.PKey)
		return err
	})
	advice := fmt.Sprintf("the ports of the job's nodes have to be members of its partition: look at the port's table in %s, and at the subnet manager", o.iov("ports", o.port(), "pkeys"))
	if errors.Is(err, errOpen) {
		advice = "make it a limited member as well (of OpenSM: allow_both_pkeys TRUE in opensm.conf, and Default=0x7fff, ipoib : ALL=both in partitions.conf)"
	}
	return want, o.fail(string(PKeyMap), fmt.Sprintf("%#04x", want.PKey), err, advice)
}

// mapOf returns errNotYet while the subnet manager has not given the port the P_Key.
func (o setter) mapOf(pkey uint16) (string, error) {
	port := o.port()
	table := map[uint16]string{}
	for _, index := range o.numbers(o.iov("ports", port, "pkeys")) {
		if key, err := strconv.ParseUint(o.sys.text(o.iov("ports", port, "pkeys", index)), 0, 16); err == nil {
			table[uint16(key)] = index
		}
	}
	job, ok := table[pkey]
	if !ok {
		return "", fmt.Errorf("port %s of %s has not got it: %w", port, o.pf.Name, errNotYet)
	}
	limited, ok := table[limitedDefault]
	if _, full := table[fullDefault]; !ok && full {
		return "", errOpen
	}
	if !ok {
		return "", fmt.Errorf("port %s of %s is not in the default partition: %w", port, o.pf.Name, errNotYet)
	}
	return fmt.Sprintf("%s/0=%s %s/1=%s", port, job, port, limited), nil
}

// errOpen is for a port with the P_Key of the default partition's full members: VFs that had
// it, too, would reach those of other jobs.
var errOpen = errors.New("the port is only a full member of the default partition, through which VMs of different jobs would reach each other")

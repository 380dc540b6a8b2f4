package sriov

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// Netlink returns the Links of the network namespace of the calling thread.
func Netlink() Links { return rtnetlink{} }

type rtnetlink struct{}

func (rtnetlink) Set(pf string, vf int, a Attribute, s device.Settings) error {
	link, err := linkOf(pf)
	if err != nil {
		return err
	}
	switch a {
	case MAC:
		mac, err := net.ParseMAC(s.MAC)
		if err != nil {
			return err
		}
		return netlink.LinkSetVfHardwareAddr(link, vf, mac)
	case VLAN:
		return netlink.LinkSetVfVlanQos(link, vf, int(s.VLAN), int(s.QoS))
	case SpoofCheck:
		return netlink.LinkSetVfSpoofchk(link, vf, s.SpoofCheck)
	case Trust:
		return netlink.LinkSetVfTrust(link, vf, s.Trust)
	case Rates:
		return netlink.LinkSetVfRate(link, vf, int(s.MinRate), int(s.MaxRate))
	case NodeGUID:
		return setGUID(netlink.LinkSetVfNodeGUID, link, vf, s.NodeGUID)
	case PortGUID:
		return setGUID(netlink.LinkSetVfPortGUID, link, vf, s.PortGUID)
	default:
		return netlink.LinkSetVfState(link, vf, linkStates[s.Link])
	}
}

func setGUID(set func(netlink.Link, int, net.HardwareAddr) error, link netlink.Link, vf int, text string) error {
	guid, err := parseGUID(text)
	if err != nil {
		return err
	}
	return set(link, vf, guid)
}

var linkStates = map[device.LinkState]uint32{
	device.LinkAuto: nl.IFLA_VF_LINK_STATE_AUTO, device.LinkEnable: nl.IFLA_VF_LINK_STATE_ENABLE, device.LinkDisable: nl.IFLA_VF_LINK_STATE_DISABLE,
}

// linkOf asks for the interface's number only. netlink.LinkByName asks for all VFs as
// well, and fails if there are too many.
func linkOf(name string) (netlink.Link, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", unix.ENODEV, err)
	}
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name, Index: i.Index}}, nil
}

// Switchdev returns false if devlink does not know the card: such cards have no switchdev
// mode.
func (rtnetlink) Switchdev(pci string) bool {
	dev, err := netlink.DevLinkGetDeviceByName("pci", pci)
	return err == nil && dev.Attrs.Eswitch.Mode == "switchdev"
}

// Settings does not use netlink.LinkByName, for two reasons. That numbers the VFs by
// their place in the list, although the kernel leaves out VFs that are being reset. And
// it cannot read a list above 64 KiB (some 200 VFs with their statistics).
func (rtnetlink) Settings(pf string, vf int) (device.Settings, error) {
	link, err := linkOf(pf)
	if err != nil {
		return device.Settings{}, err
	}
	answer, err := askLink(link.Attrs().Index)
	if errors.Is(err, unix.EMSGSIZE) {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if err != nil {
		return device.Settings{}, err
	}
	s, ok := parseLink(answer)[vf]
	if !ok {
		return s, unix.EAGAIN // the VF is being reset
	}
	return s, nil
}

// rtnetlink.h names these RTEXT_FILTER_*. Kernels before 5.16 send the statistics anyway.
const extVF, extSkipStats = 1 << 0, 1 << 3

// askLink returns the RTM_NEWLINK message of an interface, with its VFs.
func askLink(index int) ([]byte, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(extVF|extSkipStats)))
	return exchange(request.Serialize())
}

// exchange can read an answer above 64 KiB, which the netlink library cannot.
func exchange(request []byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, err
	}
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	answer := make([]byte, 1<<20)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return nil, err
	}
	return payload(answer[:n])
}

// payload returns the content of a message, or the error that the message reports.
func payload(message []byte) ([]byte, error) {
	if len(message) < unix.NLMSG_HDRLEN {
		return nil, unix.EBADMSG
	}
	kind, body := binary.NativeEndian.Uint16(message[4:]), message[unix.NLMSG_HDRLEN:]
	if kind != unix.NLMSG_ERROR {
		return body, nil
	}
	if len(body) < 4 {
		return nil, unix.EBADMSG
	}
	return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
}

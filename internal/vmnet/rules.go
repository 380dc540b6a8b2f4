package vmnet

import (
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
)

// Offsets in a packet: bytes from the start of each header.
const (
	arpAddress = 14
	ipSource   = 12
	destPort   = 2
	vxlanVNI   = 8 + 4 // after the UDP header
)

// ownRules accept what a VM with this MAC and address may send on its job's network.
func ownRules(mac net.HardwareAddr, addr netip.Addr) []bridgeport.Rule {
	return []bridgeport.Rule{
		bridgeport.All(bridgeport.NotFrom(mac), bridgeport.Drop()),
		bridgeport.All(bridgeport.ARPFrom(mac), bridgeport.When(bridgeport.Network(arpAddress, addr.AsSlice())), bridgeport.Accept()),
		bridgeport.All(bridgeport.IsIPv4, bridgeport.When(bridgeport.Network(ipSource, addr.AsSlice())), bridgeport.Accept()),
		bridgeport.Drop(),
	}
}

// toPort matches UDP packets for this port.
func toPort(port uint16) bridgeport.Rule {
	return bridgeport.All(
		bridgeport.Protocol(unix.IPPROTO_UDP),
		bridgeport.When(bridgeport.Transport(destPort, bridgeport.Uint16(port))))
}

// notFromPeer drops the job's VXLAN packets from hosts that are not in peers.
func notFromPeer(n Network, peers *nftables.Set) bridgeport.Rule {
	vni := vniOf(n.ID.Job)
	return bridgeport.All(
		toPort(n.Port),
		bridgeport.When(bridgeport.Transport(vxlanVNI, []byte{byte(vni >> 16), byte(vni >> 8), byte(vni)})),
		bridgeport.Rule{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: ipSource, Len: 4},
			&expr.Lookup{SourceRegister: 1, SetName: peers.Name, SetID: peers.ID, Invert: true},
		},
		bridgeport.Drop())
}

// rootOnly drops packets to port from sockets of ordinary users. The kernel's own VXLAN
// packets have no socket with an owner, so they do not match.
func rootOnly(port uint16) bridgeport.Rule {
	return bridgeport.All(
		toPort(port),
		bridgeport.Rule{
			&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		},
		bridgeport.Drop())
}

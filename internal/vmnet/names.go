package vmnet

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/journal"
)

// The bits of a MAC address for a job's number and for a VM's number. Slurm's job numbers
// have 26 bits.
const (
	jobBits = 26
	vmBits  = 14

	// maxVMs is how many VMs a job can have.
	maxVMs = 1 << vmBits
)

// An interface name has at most 15 bytes. A job's number takes at most 6 in base
// 36, which leaves 5 for the number of a tap.

// bridgeName returns the name of the job's bridge.
func bridgeName(job uint32) string { return "svb" + base36(job) }

// VXLAN returns the name of the job's VXLAN device.
func VXLAN(job uint32) string { return "svx" + base36(job) }

// TapName returns the name of the tap of a VM; index counts on the node.
func TapName(job uint32, index int) string { return numbered("svt", job, index) }

// sitePort returns the name of a VM's port on a bridge of the site, wireEnd that of the
// wire's other end.
func sitePort(job uint32, index int) string { return numbered("svp", job, index) }
func wireEnd(job uint32, index int) string  { return numbered("svw", job, index) }

func numbered(prefix string, job uint32, index int) string {
	return fmt.Sprintf("%s%s-%d", prefix, base36(job), index)
}

func base36(job uint32) string { return strconv.FormatUint(uint64(job), 36) }

// JobOf returns the number of the job that a link with this name would belong to.
func JobOf(link string) (uint32, bool) {
	for _, prefix := range []string{"svb", "svx", "svt", "svp", "svw"} {
		rest, ok := strings.CutPrefix(link, prefix)
		if !ok {
			continue
		}
		rest, _, _ = strings.Cut(rest, "-")
		job, err := strconv.ParseUint(rest, 36, 32)
		return uint32(job), err == nil && base36(uint32(job)) == rest
	}
	return 0, false
}

// vniOf returns the VXLAN network id of the job. Jobs whose numbers differ by 2^24 have the
// same id. A node refuses the second of them; on different nodes, the nodes' addresses
// keep them apart.
func vniOf(job uint32) uint32 { return job & (1<<24 - 1) }

// MAC returns the hardware address of a VM by its number in the job.
func MAC(job uint32, number int) net.HardwareAddr {
	var bits [8]byte
	binary.BigEndian.PutUint64(bits[:], uint64(job&(1<<jobBits-1))<<vmBits|uint64(number&(maxVMs-1)))
	mac := net.HardwareAddr(bits[2:])
	mac[0] = 2 // locally administered, not multicast
	return mac
}

// SharedMAC is [MAC] in a network that other clusters use, too, whose jobs have the same numbers. It is a hash: two of ten
// thousand VMs in a network have the same address with a probability of 1 : 20000.
func SharedMAC(cluster string, job uint32, number int) net.HardwareAddr {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d", cluster, job, number))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = 2 // see MAC
	return mac
}

// VFMAC returns the hardware address of a VF of the VM that has the address vm. It has another first byte for each of the
// VM's at most 63 VFs: 6, 10, 14 …, all locally administered and not multicast.
func VFMAC(vm net.HardwareAddr, vf int) net.HardwareAddr {
	mac := slices.Clone(vm)
	mac[0] += byte(4 * (1 + vf))
	return mac
}

// Address returns the address of a VM in the job's subnet by its number in the job.
func Address(subnet netip.Prefix, number int) (netip.Addr, error) {
	subnet = subnet.Masked()
	if !subnet.IsValid() || !subnet.Addr().Is4() {
		return netip.Addr{}, fmt.Errorf("subnet %v of the VMs is not an IPv4 prefix", subnet)
	}
	if number < 0 || number >= maxVMs {
		return netip.Addr{}, fmt.Errorf("VM %d is not one of %d, the most a job can have", number, maxVMs)
	}
	base := subnet.Addr().As4()
	sum := uint64(binary.BigEndian.Uint32(base[:])) + 1 + uint64(number)
	binary.BigEndian.PutUint32(base[:], uint32(sum))
	addr := netip.AddrFrom4(base)
	if sum > 1<<32-1 || !isHost(subnet, addr) {
		return netip.Addr{}, fmt.Errorf("subnet %v is too small for VM %d", subnet, number)
	}
	return addr, nil
}

// isHost reports whether addr may be a host in prefix: it is inside, and neither the
// network nor the broadcast address.
func isHost(prefix netip.Prefix, addr netip.Addr) bool {
	if !addr.Is4() || !prefix.Contains(addr) || addr.IsMulticast() {
		return false
	}
	if prefix.Bits() >= 31 { // point to point, or one host
		return true
	}
	a := addr.As4()
	host := binary.BigEndian.Uint32(a[:]) & (1<<(32-prefix.Bits()) - 1)
	return host != 0 && host != 1<<(32-prefix.Bits())-1
}

// alias returns the mark of the job's links. Their names have no room for the restart.
func alias(id journal.ID) string { return bridgeport.AliasPrefix + id.String() }

func parseAlias(text string) (journal.ID, error) {
	id, ok := strings.CutPrefix(text, bridgeport.AliasPrefix)
	if !ok {
		return journal.ID{}, errors.New("not a link of a job")
	}
	return journal.ParseID(id)
}

// table returns the name of the job's nftables tables. It avoids the dot of "4217.0",
// which nft would require to be quoted.
func table(id journal.ID) string { return fmt.Sprintf("slurmv-%d-%d", id.Job, id.Restart) }

func parseTable(name string) (journal.ID, error) {
	rest, ok := strings.CutPrefix(name, "slurmv-")
	id, err := journal.ParseID(strings.Replace(rest, "-", ".", 1))
	if !ok || err != nil || table(id) != name {
		return journal.ID{}, errors.New("not a table of a job")
	}
	return id, nil
}

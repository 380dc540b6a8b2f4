package guest

import (
	"context"
	"time"
	"unicode"
)

// A Setup makes a booted VM a member of the job's cluster. It may be repeated.
type Setup struct {
	HostName string  `json:"host_name"`
	User     User    `json:"user"`
	Mounts   []Mount `json:"mounts,omitempty"`
	NICs     []NIC   `json:"nics,omitempty"`
	IVShmem  IVShmem `json:"ivshmem,omitzero"`
	// GrowRoot lets the root file system fill its disk, as far as the image
	// has the tools.
	GrowRoot bool `json:"grow_root,omitempty"`
	// Fresh is what makes a VM that was restored from a template another machine
	// than the template and the other VMs from it.
	Fresh *Identity `json:"fresh,omitempty"`
}

// An Identity is what no two machines may have in common.
type Identity struct {
	Seed      []byte `json:"seed"`       // for the kernel's random numbers
	MachineID string `json:"machine_id"` // 32 hexadecimal digits
	BootID    string `json:"boot_id"`    // a UUID
	// HostKey is of the image's own sshd, in OpenSSH's format.
	HostKey       string `json:"host_key"`
	HostKeyPublic string `json:"host_key_public"`
}

// A User is the job's owner. The one with id 0 exists in every image.
type User struct {
	Name   string  `json:"name"`
	UID    uint32  `json:"uid"`
	GID    uint32  `json:"gid"`
	Groups []Group `json:"groups,omitempty"` // the primary one too, if its name is known
	Home   string  `json:"home"`
	Shell  string  `json:"shell"`
}

// A Group is one that the user is a member of.
type Group struct {
	Name string `json:"name"`
	GID  uint32 `json:"gid"`
}

// A Mount is a 9p export of the host, by its tag, and where it appears.
type Mount struct {
	Tag      string `json:"tag"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// A NIC is a network interface, found by its MAC address.
type NIC struct {
	MAC     string `json:"mac"`
	Address string `json:"address"` // "172.30.0.1/16" or "dhcp"
	MTU     int    `json:"mtu,omitempty"`
	// IPv4Only says that no other packets get through.
	IPv4Only bool `json:"ipv4_only,omitempty"`
	// Before is the MAC address that the interface has, if it is another one.
	Before string `json:"before,omitempty"`
}

// IVShmem is the memory that the VM shares with others: PCI devices of one size.
// The order of their addresses is that of their numbers.
type IVShmem struct {
	Devices int   `json:"devices"`
	Size    int64 `json:"size"` // bytes, of each
}

// A Host is a name of the VM cluster.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	MAC     string `json:"mac,omitempty"` // where it follows from the address, as on a job's own network
}

// SSH starts an SSH server for the job's owner.
type SSH struct {
	User          string   `json:"user"`
	AuthorizedKey string   `json:"authorized_key"` // one line of authorized_keys
	HostKey       string   `json:"host_key"`       // private, in OpenSSH's format
	Listen        []string `json:"listen"`         // addresses of the VM network
}

// A Report tells what a VM is and where it can be reached: by the addresses that its
// agent has set.
type Report struct {
	OS          string    `json:"os"`
	Kernel      string    `json:"kernel"`
	BootSeconds float64   `json:"boot_seconds"` // from the kernel's start to the agent's
	Addresses   []Address `json:"addresses,omitempty"`
	Warnings    []string  `json:"warnings,omitempty"` // what went wrong without making the VM useless
}

// An Address is one of a network interface.
type Address struct {
	Interface string `json:"interface"`
	MAC       string `json:"mac"`
	CIDR      string `json:"cidr"`
}

// A Machine is the VM as [Server] changes it.
type Machine interface {
	Setup(context.Context, Setup) (Report, error)
	SetHosts(context.Context, []Host) error
	StartSSH(context.Context, SSH) error
	// Template makes the VM ready to be saved, when all is quiet in it.
	Template(context.Context) error
	// Clock sets the wall clock by step. It returns what that shows then, and what the
	// kernel's monotonic clock shows, which timers use.
	Clock(step time.Duration) (now time.Time, uptime time.Duration, err error)
	// ClockSource has the kernel take its clock from the source with that name, "" from
	// the one that it has, and returns which it has then.
	ClockSource(name string) (ClockSource, error)
}

const maxListed = 1000 // addresses or warnings in a report

// clean makes a report fit to be shown: a guest may say anything.
func (r *Report) clean() {
	r.OS, r.Kernel = printable(r.OS), printable(r.Kernel)
	r.Addresses = r.Addresses[:min(len(r.Addresses), maxListed)]
	for i, a := range r.Addresses {
		r.Addresses[i] = Address{printable(a.Interface), printable(a.MAC), printable(a.CIDR)}
	}
	r.Warnings = r.Warnings[:min(len(r.Warnings), maxListed)]
	for i, w := range r.Warnings {
		r.Warnings[i] = printable(w)
	}
}

// printable bounds what a guest wants to say to people and takes out what a
// terminal would obey.
func printable(text string) string {
	var clean []rune
	for _, r := range text {
		if len(clean) == 1000 {
			break
		}
		if unicode.IsControl(r) {
			r = ' '
		}
		clean = append(clean, r)
	}
	return string(clean)
}

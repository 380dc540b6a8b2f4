package guest

import (
	"context"
	"io"
	"time"
	"unicode"
)

// A Setup makes a booted VM a member of the job's cluster. It may be repeated.
type Setup struct {
	HostName string    `json:"host_name"`
	User     User      `json:"user"`
	Mounts   []Mount   `json:"mounts,omitempty"`
	NICs     []NIC     `json:"nics,omitempty"`
	IVShmem  IVShmem   `json:"ivshmem,omitzero"`
	MPI      []MPIFile `json:"mpi,omitempty"`
	// GrowRoot makes the root file system fill its disk, if the image has the tools.
	GrowRoot bool `json:"grow_root,omitempty"`
	// Fresh gives a VM that was restored from a template an identity of its own, different
	// from the template's and from that of other VMs.
	Fresh *Identity `json:"fresh,omitempty"`
}

// An Identity is the data that must differ between any two machines.
type Identity struct {
	Seed      []byte `json:"seed"`       // for the kernel's random numbers
	MachineID string `json:"machine_id"` // 32 hexadecimal digits
	BootID    string `json:"boot_id"`    // a UUID
	// HostKey is for the image's own sshd, in OpenSSH's format.
	HostKey       string `json:"host_key"`
	HostKeyPublic string `json:"host_key_public"`
}

// A User is the job's owner. Root, with id 0, exists in every image.
type User struct {
	Name   string  `json:"name"`
	UID    uint32  `json:"uid"`
	GID    uint32  `json:"gid"`
	Groups []Group `json:"groups,omitempty"` // the primary one too, if its name is known
	Home   string  `json:"home"`
	Shell  string  `json:"shell"`
}

// A Group is a group of the user.
type Group struct {
	Name string `json:"name"`
	GID  uint32 `json:"gid"`
}

// A Mount is a directory of the host, and where it is mounted.
type Mount struct {
	Of       string `json:"of,omitempty"`  // the path of a mounted directory that is to be at Path, too; "" if it is one itself
	Tag      string `json:"tag,omitempty"` // of its export by 9p; "" if it was mounted by [Session.Mount]
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// A NIC is a network interface, found by its MAC address or, IP over InfiniBand, by the GUID of
// its port.
type NIC struct {
	MAC     string `json:"mac"`
	GUID    string `json:"guid,omitempty"` // "02:50:00:01:07:90:00:81"; "" is for a NIC with a MAC
	Address string `json:"address"`        // "172.30.0.1/16" or "dhcp"
	MTU     int    `json:"mtu,omitempty"`
	// IPv4Only says that the network drops all other packets.
	IPv4Only bool `json:"ipv4_only,omitempty"`
	// Before is the MAC address that the interface has now; "" if it is MAC.
	Before string `json:"before,omitempty"`
}

// IVShmem is the memory that the VM shares with others: devices of one size. The numbers of
// PCI devices follow the order of their addresses. NVDIMMs have UUIDs that tell their numbers.
type IVShmem struct {
	Devices int   `json:"devices"`
	Size    int64 `json:"size"` // bytes, of each
	NVDIMM  bool  `json:"nvdimm,omitempty"`
}

// An MPIFile is something of Slurm-V's that MPI programs need in the VM, which gets it in the
// directory [MPIDir].
type MPIFile struct {
	Name    string `json:"name"`
	Content []byte `json:"content"`
}

// The files of MPI in a VM.
const (
	MPIDir     = "/run/slurm-v/lib"
	MPILibrary = "libslurmv-mpi.so" // gives MPI the memory of a device; programs preload it; see ivshmem/mpi
	PMIxServer = "slurmv-pmix"      // serves the ranks of programs that need PMIx; see internal/pmix
)

// A Host is a name and an address of the job's network.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	MAC     string `json:"mac,omitempty"` // if known, as on a job's own network
}

// SSH starts an SSH server for the job's owner.
type SSH struct {
	User          string   `json:"user"`
	AuthorizedKey string   `json:"authorized_key"` // one line of authorized_keys
	HostKey       string   `json:"host_key"`       // private, in OpenSSH's format
	Listen        []string `json:"listen"`         // addresses of the VM network
}

// A Report describes a VM, and the addresses that its agent has set.
type Report struct {
	OS          string    `json:"os"`
	Kernel      string    `json:"kernel"`
	BootSeconds float64   `json:"boot_seconds"` // from the kernel's start to the agent's
	Addresses   []Address `json:"addresses,omitempty"`
	Warnings    []string  `json:"warnings,omitempty"` // failures that leave the VM usable
}

// An Address is an address of a network interface.
type Address struct {
	Interface string `json:"interface"`
	MAC       string `json:"mac"`
	CIDR      string `json:"cidr"`
}

// A Machine is the VM. A [Server] changes it.
type Machine interface {
	Setup(context.Context, Setup) (Report, error)
	// Mount mounts a directory by FUSE. Reads from the returned device are requests of the
	// kernel, writes are answers, each a whole message. Close unmounts the directory. Without
	// FUSE the error matches [ErrNoFUSE].
	Mount(context.Context, Mount) (io.ReadWriteCloser, error)
	// Egress makes an interface that leads out of the job's network, with a default route.
	// Reads from the returned device are the guest's packets, writes are for the guest, each
	// a whole packet of IPv4. Close removes the interface.
	Egress(context.Context) (io.ReadWriteCloser, error)
	SetHosts(context.Context, []Host) error
	StartSSH(context.Context, SSH) error
	// Template makes the VM ready to be saved. It waits until the boot is over.
	Template(context.Context) error
	// ExpectNVDIMMs loads the drivers of NVDIMMs. Without them the kernel forgets those that are plugged in.
	ExpectNVDIMMs(context.Context) error
	// Clock adds step to the wall clock. It returns the new wall-clock time, and the time
	// of the kernel's monotonic clock, which timers use.
	Clock(step time.Duration) (now time.Time, uptime time.Duration, err error)
	// ClockSource makes the kernel use the clock source with that name, and returns the
	// state afterwards. The name "" changes nothing.
	ClockSource(name string) (ClockSource, error)
}

const maxListed = 1000 // addresses or warnings in a report

// clean makes a report fit to be shown, because a guest may send anything.
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

// printable shortens a guest's text for people, and takes out control characters, which a
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

package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/internal/environ"
)

// The variables about a job's tags, beside those of package cxi.
const (
	envJob  = "SLURMV_FABRIC_JOB" // whose tags they are
	envVLAN = "SLURMV_VLAN"
	envPKey = "SLURMV_PKEY"
	envVNIs = "SLURMV_VNIS"

	envSession  = "FI_CXI_COLL_JOB_ID"
	envStep     = "FI_CXI_COLL_JOB_STEP_ID"
	envToken    = "FI_CXI_COLL_MCAST_TOKEN"
	envManager  = "FI_CXI_COLL_FABRIC_MGR_URL"
	envAddrs    = "FI_CXI_HWCOLL_ADDRS_PER_JOB"
	envMinNodes = "FI_CXI_HWCOLL_MIN_NODES"
)

// names are the variables that a job without tags must not have from another job.
var names = slices.Concat([]string{envJob, envVLAN, envPKey, envVNIs}, cxi.Variables,
	[]string{envSession, envStep, envToken, envManager, envAddrs, envMinNodes})

// pkeyDefaults are the variables of UCX, MVAPICH and Open MPI's btl/openib for the P_Key. They
// take it without the bit of full members: UCX refuses more than 0x7fff (uct/ib/base). For
// NCCL, whose variable is an index, the default 0 is right: a job's P_Key has this index.
var pkeyDefaults = []string{"UCX_IB_PKEY", "MV2_DEFAULT_PKEY", "OMPI_MCA_btl_openib_pkey"}

// multicasts is the path at the fabric manager below which libfabric makes multicast trees.
const multicasts = "/fabric/collectives/multicasts"

// forNobody is the file of variables of all jobs without tags. Slurm's own plugin for Slingshot
// gives steps variables of the same names, which stay theirs.
func forNobody(boot string, slurmGivesVNIs bool) string {
	text := Tags{}.file(boot)
	for _, name := range cxi.Variables {
		if slurmGivesVNIs {
			text = strings.Replace(text, "clear "+name+"\n", "", 1)
		}
	}
	return text
}

// file is the file of variables that the plugin reads; spank/fabric.c describes it.
func (t Tags) file(boot string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "boot %s\n", boot)
	given := t.variables(t.Services)
	for _, entry := range given {
		fmt.Fprintf(&text, "set %s\n", entry)
	}
	if t.Reservation.Collectives != nil {
		fmt.Fprintf(&text, "step %s\n", envStep)
	}
	for _, entry := range t.defaults() {
		fmt.Fprintf(&text, "default %s\n", entry)
	}
	for _, name := range t.without(given) {
		fmt.Fprintf(&text, "clear %s\n", name)
	}
	text.WriteString("end\n")
	return text.String()
}

// variables are those that the job has because of its tags, as "NAME=value". Programs in a
// VM have services with other names of devices than the node's.
func (t Tags) variables(services []cxi.Placed) (entries []string) {
	r := t.Reservation
	if r.Job.Job == 0 {
		return nil
	}
	entries = append(entries, fmt.Sprintf("%s=%d", envJob, r.Job.Job))
	for kind, name := range map[fabric.Kind]string{fabric.VLAN: envVLAN, fabric.PKey: envPKey, fabric.VNI: envVNIs} {
		if tags := r.Tags(kind); len(tags) > 0 {
			entries = append(entries, name+"="+texts(kind, tags))
		}
	}
	slices.Sort(entries)
	entries = append(entries, cxi.Environment(cxi.JobOf(r, 0), services)...)
	return append(entries, collectives(r.Collectives)...)
}

func texts(kind fabric.Kind, tags []fabric.Tag) string {
	list := make([]string, len(tags))
	for i, tag := range tags {
		list[i] = tag.Text(kind)
	}
	return strings.Join(list, ",")
}

// collectives are the variables with which libfabric makes multicast trees, all but that
// of the step (fi_cxi(7)).
func collectives(c *fabric.Collectives) []string {
	if c == nil {
		return nil
	}
	return []string{
		envSession + "=" + c.Session,
		envToken + "=" + c.Token,
		envManager + "=" + strings.TrimSuffix(c.URL, "/") + multicasts,
		fmt.Sprintf("%s=%d", envAddrs, c.Addrs),
		fmt.Sprintf("%s=%d", envMinNodes, c.MinNodes),
	}
}

// defaults are variables that the user may have set to something else.
func (t Tags) defaults() (entries []string) {
	if keys := t.Reservation.Tags(fabric.PKey); len(keys) > 0 {
		for _, name := range pkeyDefaults {
			entries = append(entries, fmt.Sprintf("%s=%#04x", name, uint16(keys[0])))
		}
	}
	return entries
}

// without returns the names that given does not set.
func (t Tags) without(given []string) (absent []string) {
	for _, name := range names {
		if !environ.Has(given, name) && (name != envStep || t.Reservation.Collectives == nil) {
			absent = append(absent, name)
		}
	}
	return absent
}

// A GuestCard is a Slingshot device in a VM: a virtual function of the node's card.
type GuestCard struct {
	Guest string // its name in the VM: "cxi0"
	Card  string // the node's card: "cxi1"
}

// ForGuest returns the environment of a program in a VM with these Slingshot devices, made
// from env, which the program would have without tags.
func (t Tags) ForGuest(env []string, cards []GuestCard) []string {
	step := environ.Value(env, "SLURM_STEP_ID")
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(names, name)
	})
	env = append(env, t.variables(t.inGuest(cards))...)
	if t.Reservation.Collectives != nil {
		env = append(env, envStep+"="+step)
	}
	for _, entry := range t.defaults() {
		if name, _, _ := strings.Cut(entry, "="); environ.Value(env, name) == "" {
			env = append(env, entry)
		}
	}
	return env
}

// inGuest returns the services that hold for the VM's devices. A service of a card holds
// for the card's virtual functions (shs-cxi-driver refuses to make any on those).
func (t Tags) inGuest(cards []GuestCard) (services []cxi.Placed) {
	for _, c := range cards {
		for _, s := range t.Services {
			if s.Card == c.Card {
				s.Card = c.Guest
				services = append(services, s)
			}
		}
	}
	return services
}

package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/openstack"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
	"github.com/slurm-v/slurm-v/vmstep"
)

// inTheCloud is a site whose VMs nova makes, and the first of a job's two nodes.
func inTheCloud(t *testing.T) *cloud {
	t.Helper()
	return inTheCloudOf(t, "lab")
}

func inTheCloudOf(t *testing.T, cluster string) *cloud {
	t.Helper()
	cfg := config.Default()
	cfg.Backend.Type = config.BackendOpenStack
	cfg.Network["default"] = config.Network{Type: config.NetworkNeutron, Neutron: "guests", Subnet: "10.79.0.0/16"}
	cfg.Images.Catalogue["demo"] = config.Image{Path: "/images/demo.qcow2"}
	job := plan.Job{ID: journal.ID{Job: 7}, Node: "n1", Nodes: 2, Spec: jobspec.Spec{
		VMsPerNode: 2, VCPUs: 1, MemoryMiB: 384, Image: "demo", Network: "default",
	}}
	p, err := plan.New(cfg, job, owner.Owner{}, inCloud(plan.Hardware{NUMA: -1, Cluster: cluster}))
	if err != nil {
		t.Fatal(err)
	}
	nodes := func(context.Context) ([]string, error) { return []string{"n1", "n2"}, nil }
	v := &VMs{Set: machine.NewSet(p, nil, nil), links: &network{plan: p, slurm: Slurmctld{Nodes: nodes}}}
	return backendOf(v).(*cloud)
}

// A node whose libvirtd does not answer says so, and gives the back-end up like any other.
func TestANodeWithoutNovasLibvirtd(t *testing.T) {
	c := inTheCloud(t)
	c.Plan.Backend.CloudsFile, c.Plan.Backend.Libvirt = cloudsFile(t), "qemu+unix:///system?socket=/nonexistent"
	if err := c.open(t.Context()); err == nil || !strings.Contains(err.Error(), "backend.libvirt must be the libvirtd that nova-compute uses on node n1") {
		t.Error(err)
	}
	c.close()
}

// The first node asks for the VMs of all nodes, each on its node and with its address.
func TestTheFirstNodeAsksForAllVMs(t *testing.T) {
	mac := func(number int) string { return vmnet.SharedMAC("lab", 7, number).String() }
	c := inTheCloud(t)
	r, err := c.wanted(t.Context(), images.Info{VirtualBytes: 3 << 30})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Servers {
		got = append(got, s.Host+" "+s.Name[:len("slurmv-7.0-vm0")]+" "+s.MAC)
	}
	want := []string{
		"n1 slurmv-7.0-vm0 " + mac(0), "n1 slurmv-7.0-vm1 " + mac(1),
		"n2 slurmv-7.0-vm2 " + mac(2), "n2 slurmv-7.0-vm3 " + mac(3),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r.DiskMiB != 3<<10 || r.MemoryMiB != 384 || r.Network != "guests" || r.VFNetwork != "" {
		t.Errorf("%+v", r)
	}
	c.links.slurm.Nodes = func(context.Context) ([]string, error) { return []string{"n1"}, nil }
	if _, err := c.wanted(t.Context(), images.Info{}); err == nil {
		t.Error("Slurm knows one node and the step two, and nobody minds")
	}
}

// Clusters that share a network of neutron have jobs of the same number. neutron has each MAC address once: it refuses the
// ports of the second job.
func TestClustersShareANetworkOfNeutron(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"lab", "hall"} {
		c := inTheCloudOf(t, cluster)
		c.Plan.Job.Spec.SRIOV.VFs = make([]jobspec.VF, 2)
		r, err := c.wanted(t.Context(), images.Info{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Servers {
			for _, mac := range []string{s.MAC, s.VFs[0].MAC, s.VFs[1].MAC} {
				if other := seen[mac]; other != "" {
					t.Errorf("cluster %s asks for %s, which cluster %s has", cluster, mac, other)
				}
				seen[mac] = cluster
			}
		}
		if r.Servers[0].MAC != c.Machines[0].Plan.MAC {
			t.Errorf("the port has %s, and its VM looks for %s", r.Servers[0].MAC, c.Machines[0].Plan.MAC)
		}
	}
}

// What a node offers to VMs of nova's says whose they are.
func TestOfferedInTheCloud(t *testing.T) {
	cfg := config.Default()
	cfg.Backend.Type, cfg.Backend.CloudsFile = config.BackendOpenStack, cloudsFile(t)
	hw, err := offered(t.Context(), cfg, plan.Job{Node: "n1"})
	if err != nil || !hw.Foreign || !strings.Contains(hw.Cluster, cfg.Backend.Label) {
		t.Errorf("%+v, %v", hw, err)
	}
}

// The first node logs in and uploads the image for half an hour before it asks nova for the servers. That counts for no VM's
// time to start, on whichever node.
func TestOnlyNovasTimeCounts(t *testing.T) {
	const uploading, ready = 30 * time.Minute, 5 * time.Minute
	for name, tt := range map[string]struct {
		rank  int
		ends  time.Duration
		words string
	}{
		"the first node":                  {0, uploading + ready, "node n1 has not seen nova start the VM within 5m0s after it was asked (--vm-ready-timeout); if nova did, backend.libvirt is not its libvirtd there"},
		"another, which sees no such VMs": {1, time.Hour + ready, "node n1 has not seen nova start the VM within 1h5m0s (limits.ready_timeout and --vm-ready-timeout); "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := inTheCloud(t)
				c.Plan.Job.Rank, c.Plan.Job.Spec.ReadyTimeout = tt.rank, ready
				ctx, cancel := c.untilStarted(t.Context())
				defer cancel()
				began := time.Now()
				time.AfterFunc(uploading, func() { close(c.asked) })
				<-ctx.Done()
				if took := time.Since(began); took != tt.ends {
					t.Errorf("it ended after %v instead of %v", took, tt.ends)
				}
				if err := c.explainAbsence(ctx); !strings.HasPrefix(err.Error(), tt.words) {
					t.Error(err)
				}
			})
		})
	}
}

// An upload that never ends, or a cloud that is never ready, ends the job before the other nodes give up, which do not know why.
func TestNovaIsAskedSoonEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inTheCloud(t)
		began := time.Now()
		err := c.soonEnough(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("upload: after 5 of 9 MiB")
		})
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %v", took)
		}
		if want := "OpenStack was not ready to make the VMs within 1h0m0s (limits.ready_timeout): upload: after 5 of 9 MiB"; err == nil || err.Error() != want {
			t.Error(err)
		}
		refused := errors.New("nova says no")
		if err := c.soonEnough(t.Context(), func(context.Context) error { return refused }); !errors.Is(err, refused) {
			t.Error(err)
		}
	})
}

// The first node ends the job if a server of any node does not run in time.
func TestTheFirstNodeWaitsForTheServersOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inTheCloud(t)
		c.Plan.Job.Spec.ReadyTimeout = 5 * time.Minute
		began := time.Now()
		err := c.awaitAll(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("1 of 2 servers run")
		})
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("it took %v", took)
		}
		const want = "nova did not start all VMs within 5m0s after it was asked (--vm-ready-timeout): 1 of 2 servers run"
		if err == nil || err.Error() != want {
			t.Error(err)
		}
		if err := c.awaitAll(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// cloudsFile writes credentials for a site that does not answer.
func cloudsFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(path, []byte("clouds: {slurm-v: {auth: {auth_url: http://site, password: none}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The user reads at once why the cloud makes no VMs. Only the job's first node asks it.
func TestTheCloudsRefusalIsTold(t *testing.T) {
	for rank, want := range []string{"clouds.yaml", ""} {
		c, told := inTheCloud(t), ""
		c.Plan.Job.Rank, c.Plan.Backend.CloudsFile = rank, filepath.Join(t.TempDir(), "clouds.yaml")
		c.Clock, c.Progress = machine.StartStopwatch(time.Time{}), func(p vmstep.Progress) { told += p.Note }
		j, err := journal.Create(t.TempDir(), c.Plan.Job.ID, journal.Header{Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		c.journal = j
		err = c.request(t.Context(), images.Info{})
		if (err == nil) != (want == "") || !strings.Contains(told, want) || want == "" && told != "" {
			t.Errorf("rank %d: %q, %v", rank, told, err)
		}
		if servers := named(j, recordServers); len(servers) != 1-rank {
			t.Errorf("rank %d: the journal has the servers of %v", rank, servers)
		}
	}
}

func TestWhatTheCloudRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		network    string
		vf         jobspec.VF
		vlan, pkey uint16
		want       string // "" is allowed
	}{
		"no network of VFs": {want: "backend.vf_network"},
		"a card":            {network: "vfs", vf: jobspec.VF{PF: "eth1"}, want: "leave out pf, numa=require and spread"},
		"a near card":       {network: "vfs", vf: jobspec.VF{NUMA: jobspec.NUMARequire}, want: "leave out pf, numa=require and spread"},
		"cards apart":       {network: "vfs", vf: jobspec.VF{Spread: true}, want: "leave out pf, numa=require and spread"},
		"a VLAN":            {network: "vfs", vlan: 105, want: "the job's VLAN 105"},
		"a P_Key":           {network: "vfs", pkey: 0x9004, want: "the job's P_Key 0x9004"},
		"a rate":            {network: "vfs", vf: jobspec.VF{MinMbps: 10}}, // see TestRatesOfTheCloud
		"a VF":              {network: "vfs"},
	} {
		t.Run(name, func(t *testing.T) {
			c := inTheCloud(t)
			c.Plan.VLAN, c.Plan.PKey = tt.vlan, tt.pkey
			c.Plan.Backend.VFNetwork, c.Plan.Job.Spec.SRIOV.VFs = tt.network, []jobspec.VF{tt.vf}
			err := c.vfs(t.Context())
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Error(err)
			}
		})
	}
}

// All VMs know the addresses of the job's VFs, so each VM gives its own their addresses.
func TestGuestsOfTheCloudSetTheAddressesOfTheirVFs(t *testing.T) {
	c := inTheCloud(t)
	with := plantest.WithVFs(t).VMs[1]
	c.Machines[0].Plan.VFs = with.VFs
	var own backend = c
	want := []guest.NIC{{MAC: with.VFs[0].MAC, Address: "172.29.0.7/16"}, {MAC: with.VFs[1].MAC, Address: "172.29.0.8/16"}}
	if diff := cmp.Diff(want, own.vfNICs(c.Machines[0])); diff != "" {
		t.Errorf("NICs differ (-want +got):\n%s", diff)
	}
	c.Machines[0].Plan.VFs = make([]plan.VF, 2) // without addresses
	if nics := own.vfNICs(c.Machines[0]); len(nics) != 0 {
		t.Errorf("NICs without an address: %v", nics)
	}
}

// An uploaded image has the firmware that it needs.
func TestAnUploadHasItsFirmware(t *testing.T) {
	for firmware, want := range map[config.Firmware]string{config.FirmwareUEFI: "uefi", config.FirmwareBIOS: ""} {
		c := inTheCloud(t)
		c.Log, c.Plan.Firmware = slog.New(slog.DiscardHandler), firmware
		options := c.imageOptions(images.Info{})
		if options["hw_firmware_type"] != want || options["hw_machine_type"] != "pc" {
			t.Errorf("%s: %v", firmware, options)
		}
	}
}

// Rates are refused where the cloud has none, or left out with a warning if the site says so.
func TestRatesOfTheCloud(t *testing.T) {
	wanted := openstack.Rates{MinMbps: 100, MaxMbps: 1000}
	for name, tt := range map[string]struct {
		mode  config.VFMode
		has   bool
		want  openstack.Rates
		fails bool
		warns bool
	}{
		"it has them":                {config.VFStrict, true, wanted, false, false},
		"it has none":                {config.VFStrict, false, wanted, true, false},
		"it has none, and may do so": {config.VFSoft, false, openstack.Rates{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, told := inTheCloud(t), ""
			c.Clock, c.Progress = machine.StartStopwatch(time.Time{}), func(p vmstep.Progress) { told += p.Note }
			c.Plan.VFMode, c.Plan.Job.Spec.SRIOV.VFs = tt.mode, []jobspec.VF{{MinMbps: 100, MaxMbps: 1000}}
			for i := range c.Plan.VMs {
				c.Plan.VMs[i].VFs = []plan.VF{{MAC: "02:00:00:00:00:01"}}
			}
			r := openstack.Request{Servers: []openstack.Server{c.server("n1", c.Plan.VMs[0])}}
			err := c.checkRates(t.Context(), func(context.Context) (bool, error) { return tt.has, nil }, &r)
			if (err != nil) != tt.fails || err != nil && !strings.Contains(err.Error(), "leave min and max out") {
				t.Error(err)
			}
			if got := r.Servers[0].VFs[0].Rates; got != tt.want || strings.Contains(told, "warning: --sriov") != tt.warns {
				t.Errorf("%+v; %q", got, told)
			}
		})
	}
}

func TestTheAddressIsNeutrons(t *testing.T) {
	c := inTheCloud(t)
	m := c.Machines[0]
	if err := c.address(m, hypervisor.Instance{Addresses: []string{"10.99.0.5", "10.79.1.5"}}); err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParsePrefix("10.79.1.5/16"); m.Address() != want {
		t.Errorf("%v instead of %v", m.Address(), want)
	}
	if err := c.address(c.Machines[1], hypervisor.Instance{Addresses: []string{"10.99.0.5"}}); err == nil {
		t.Error("an address outside of the subnet is taken")
	}
	if err := c.address(c.Machines[1], hypervisor.Instance{}); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Error(err)
	}
	c.Plan.Network.Subnet = "" // neutron's DHCP gives addresses
	if err := c.address(c.Machines[1], hypervisor.Instance{}); err != nil || c.Machines[1].Address().IsValid() {
		t.Errorf("%v, %v", c.Machines[1].Address(), err)
	}
}

// fakeMarks is a cloud with things of these jobs. Those of job 5.0 never go.
type fakeMarks struct {
	jobs []string

	mu      sync.Mutex
	deleted []string
	unheld  int // times that images without a job were deleted
}

func (f *fakeMarks) DeleteUnheldImages(context.Context) error {
	f.unheld++
	return nil
}

func (f *fakeMarks) Jobs(context.Context) ([]string, error) { return f.jobs, nil }

func (f *fakeMarks) Delete(ctx context.Context, job string) error {
	if job == "5.0" {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("job %s: %w", job, context.Cause(ctx))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleted = append(f.deleted, job)
	return nil
}

// Clean removes what ended jobs left in the cloud, and leaves running jobs and what is not a
// job's alone. One job that the cloud does not remove takes nothing from the others.
func TestCleanOfTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeMarks{jobs: []string{"4.0", "5.0", "6.1", "7.0", "site"}}
		running := func(context.Context) ([]slurm.RunID, error) { return []slurm.RunID{{Job: 6, Restart: 2}}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), cloudPatience)
		defer cancel()
		cleaned, err := cleanJobs(ctx, f, running)
		slices.Sort(f.deleted)
		if diff := cmp.Diff([]string{"4.0", "7.0"}, f.deleted); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]journal.ID{{Job: 4}, {Job: 7}}, cleaned); diff != "" || err == nil || !strings.Contains(err.Error(), "job 5.0") {
			t.Error(diff, err)
		}
		silent := func(context.Context) ([]slurm.RunID, error) { return nil, errors.New("slurmctld is down") }
		f.deleted = nil
		if _, err := cleanJobs(t.Context(), f, silent); err == nil || f.deleted != nil {
			t.Errorf("Slurm does not answer: %v, %v", f.deleted, err)
		}
		f.jobs, f.unheld = nil, 0
		if _, err := cleanJobs(t.Context(), f, silent); err != nil || f.unheld != 1 {
			t.Errorf("images without a job are deleted %d times: %v", f.unheld, err)
		}
	})
}

// A job that was requeued asks for ports with the MAC addresses of its first run, which neutron
// has once only. What other jobs have stays.
func TestARequeuedJobRemovesWhatItsEarlierRunsLeft(t *testing.T) {
	f := &fakeMarks{jobs: []string{"7.0", "7.1", "8.0", "70.0", "site"}}
	if err := removeEarlier(t.Context(), f, 7); err != nil {
		t.Error(err)
	}
	slices.Sort(f.deleted)
	if diff := cmp.Diff([]string{"7.0", "7.1"}, f.deleted); diff != "" {
		t.Error(diff)
	}
}

var _ marked = (*openstack.Cloud)(nil)

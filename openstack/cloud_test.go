package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/cassette"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/recorder"
)

// The tests replay what a real cloud has answered: nova 26.2, neutron 21.0, keystone 22.0,
// glance 25.1 (Zed, from Debian 12), with computes n1 and n2. Record the answers anew with
//
//	scripts/openstack run go test ./openstack -record
//
// where scripts/openstack has started such a cloud.
var record = flag.Bool("record", false, "talk to the cloud of OS_CLIENT_CONFIG_FILE, and keep its answers")

// withCloud runs a test against the cloud's recorded answers, in which no time passes.
func withCloud(t *testing.T, test func(t *testing.T, c *Cloud)) {
	t.Helper()
	if *record {
		test(t, open(t, settings(t, recorder.ModeRecordOnly)))
		return
	}
	synctest.Test(t, func(t *testing.T) { test(t, open(t, settings(t, recorder.ModeReplayOnly))) })
}

func open(t *testing.T, s Settings) *Cloud {
	t.Helper()
	c, err := Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func settings(t *testing.T, mode recorder.Mode) Settings {
	t.Helper()
	s := Settings{CloudsFile: os.Getenv("OS_CLIENT_CONFIG_FILE"), Cloud: "slurmv", Label: "test"}
	if mode == recorder.ModeReplayOnly {
		s.CloudsFile = cloudsFile(t, replayed)
	}
	s.wire = func(network http.RoundTripper) http.RoundTripper {
		var played atomic.Int32
		count := func(*cassette.Interaction) error {
			played.Add(1)
			return nil
		}
		path := filepath.Join("testdata", t.Name())
		tape, err := recorder.New(path,
			recorder.WithMode(mode), recorder.WithRealTransport(network), recorder.WithSkipRequestLatency(true), recorder.WithMatcher(sameRequest),
			recorder.WithHook(scrub, recorder.BeforeSaveHook), recorder.WithHook(count, recorder.BeforeResponseReplayHook))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = tape.Stop()
			if mode == recorder.ModeReplayOnly {
				allPlayed(t, path, int(played.Load()))
			}
		})
		return tape
	}
	return s
}

// allPlayed checks that the test asked for everything that was recorded: a request that is left
// out would not be noticed otherwise.
func allPlayed(t *testing.T, path string, played int) {
	t.Helper()
	tape, err := cassette.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if played != len(tape.Interactions) {
		t.Errorf("%d of %d recorded requests were made", played, len(tape.Interactions))
	}
}

// replayed are credentials for answers that are recorded.
const replayed = `clouds:
  slurmv:
    auth_type: v3applicationcredential
    auth: {auth_url: "http://10.77.0.10:5000/v3", application_credential_id: none, application_credential_secret: none}
    region_name: RegionOne
`

// cloudsFile writes credentials into a file.
func cloudsFile(t *testing.T, credentials string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(path, []byte(credentials), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sameRequest compares the bodies, too: requests for the servers of a job differ in nothing
// else, and come in any order.
func sameRequest(r *http.Request, recorded cassette.Request) bool {
	if r.Method != recorded.Method || r.URL.String() != recorded.URL {
		return false
	}
	if r.Method != http.MethodPost || strings.Contains(r.URL.Path, "/auth/") {
		return true
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var got, want any
	return json.Unmarshal(body, &got) == nil && json.Unmarshal([]byte(recorded.Body), &want) == nil && reflect.DeepEqual(got, want)
}

// scrub takes credentials, and what no test reads, out of what is kept.
func scrub(i *cassette.Interaction) error {
	if strings.Contains(i.Request.URL, "/auth/") {
		i.Request.Body = "{}"
	}
	i.Request.Headers = nil
	kept := http.Header{}
	for _, name := range []string{"Content-Type", "Openstack-Api-Version"} {
		if value := i.Response.Headers.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	if i.Response.Headers.Get("X-Subject-Token") != "" {
		kept.Set("X-Subject-Token", "token")
	}
	i.Response.Headers = kept
	return nil
}

// request asks for one small VM on each host.
func request(job string, hosts ...string) Request {
	r := Request{Job: job, Image: Image{Name: "demo"}, VCPUs: 1, MemoryMiB: 128, DiskMiB: 1536, Network: "guests"}
	for i, host := range hosts {
		r.Servers = append(r.Servers, Server{
			Name: "slurmv-" + job + "-vm" + string(rune('0'+i)), Host: host, MAC: "02:00:00:00:" + job[:2] + ":0" + string(rune('0'+i)),
		})
	}
	return r
}

// begin asks for the VMs, and removes them when the test has ended.
func begin(t *testing.T, c *Cloud, r Request) error {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), r.Job); err != nil {
			t.Error(err)
		}
	})
	if err := c.Create(t.Context(), r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("the test waits no longer"))
	defer cancel()
	return c.Await(ctx, r.Job, len(r.Servers))
}

// nothingLeft checks that the cloud has nothing of any job.
func nothingLeft(t *testing.T, c *Cloud) {
	t.Helper()
	if jobs, err := c.Jobs(t.Context()); err != nil || len(jobs) != 0 {
		t.Errorf("left in the cloud: %v, %v", jobs, err)
	}
}

// A job's VMs run where Slurm says, and after Delete nothing is left.
func TestAJobComesAndGoes(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		r := request("10.0", "n1", "n2")
		if err := begin(t, c, r); err != nil {
			t.Fatal(err)
		}
		all, err := c.nova.list(t.Context(), c.mark(r.Job))
		if err != nil {
			t.Fatal(err)
		}
		where := map[string]string{}
		for _, s := range all {
			where[s.Name] = s.Host
		}
		if diff := cmp.Diff(map[string]string{r.Servers[0].Name: "n1", r.Servers[1].Name: "n2"}, where); diff != "" {
			t.Error(diff)
		}
		jobs, err := c.Jobs(t.Context())
		if err != nil || !cmp.Equal(jobs, []string{"10.0"}) {
			t.Errorf("jobs in the cloud: %v, %v", jobs, err)
		}
		if err := c.Delete(t.Context(), r.Job); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, c)
	})
}

// What nova may give to VMs is compared with what Slurm gives to jobs. placement knows a compute host by libvirt's name.
// nova's answer is not recorded: hosts have one name there.
func TestCapacity(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		is := func(host, name string) map[string]any {
			return map[string]any{"id": name, "hypervisor_hostname": name, "hypervisor_version": 9000000, "service": map[string]any{"id": "1", "host": host}}
		}
		hosts := []any{is("n1", "other"), is("node1", "n1"), is("node9", "n9")}
		c.nova = nova{serviceOf(answers{"os-hypervisors/detail": {"hypervisors": hosts}})}
		has, err := c.Capacity(t.Context(), "node1")
		if err != nil || has.CPUs < 1 || has.MemoryMiB < 512 {
			t.Errorf("%+v, %v", has, err)
		}
		for host, want := range map[string]string{"node9": "placement has no provider n9", "n9": "nova has no compute host n9"} {
			if _, err := c.Capacity(t.Context(), host); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("of %s, which is not there: %v", host, err)
			}
		}
	})
}

// Rates of a virtual function are a QoS policy of its port, which is gone with the job. Nobody gets a minimum that
// placement does not know.
func TestRates(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		if has, err := c.HasRates(t.Context()); err != nil || !has {
			t.Fatalf("QoS: %v, %v", has, err)
		}
		r := request("14.0", "n1")
		r.VFNetwork, r.Servers[0].VFs = "guests", []VF{{"02:00:00:01:14:00", Rates{MaxMbps: 1000}}}
		if err := begin(t, c, r); err != nil {
			t.Fatal(err)
		}
		policies, err := c.neutron.policiesOf(t.Context(), c.mark(r.Job))
		if err != nil || len(policies) != 1 || len(policies[0].Rules) != 1 || policies[0].Rules[0]["max_kbps"] != 1e6 {
			t.Fatalf("policies %+v, %v", policies, err)
		}
		var has struct {
			Ports []struct {
				QoS string `json:"qos_policy_id"`
			}
		}
		of := c.neutron.api.ServiceURL("ports") + "?mac_address=02:00:00:01:14:00"
		response, err := c.neutron.api.Get(t.Context(), of, &has, nil)
		if err != nil || len(has.Ports) != 1 || has.Ports[0].QoS != policies[0].ID {
			t.Fatalf("the port's policy: %+v, %v", has, err)
		}
		response.Body.Close()
		if err := c.Delete(t.Context(), r.Job); err != nil {
			t.Fatal(err)
		}
		sure := request("15.0", "n1")
		sure.VFNetwork, sure.Servers[0].VFs = "guests", []VF{{"02:00:00:01:15:00", Rates{MinMbps: 100, MaxMbps: 1000}}}
		if err := begin(t, c, sure); err == nil || !strings.Contains(err.Error(), "No valid host was found.") {
			t.Errorf("a minimum that no host has: %v", err)
		}
		if jobs, err := c.Jobs(t.Context()); err != nil || !cmp.Equal(jobs, []string{"15.0"}) {
			t.Errorf("jobs in the cloud: %v, %v", jobs, err)
		}
		if err := c.Delete(t.Context(), sure.Job); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, c)
	})
}

// Each failure that the API has is one sentence, and leaves nothing.
func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Request)
		want   string
	}{
		"host":    {func(r *Request) { r.Servers[0].Host = "n9" }, "nova has no compute host n9"},
		"full":    {func(r *Request) { r.MemoryMiB = 1 << 20 }, "No valid host was found."},
		"image":   {func(r *Request) { r.Image.Name = "none" }, `there is no image "none"`},
		"network": {func(r *Request) { r.Network = "none" }, `there is no network "none"`},
		"flavor":  {func(r *Request) { r.Flavor = "none" }, `there is no flavor "none" (backend.flavor)`},
		"start": {func(r *Request) { // what libvirt refuses
			r.Image = imageOf(strings.Repeat("\x00", 1<<16))
			r.Image.Options = map[string]string{"hw_machine_type": "none-of-qemu"}
		}, "'none-of-qemu' is not valid/supported machine type"},
	} {
		t.Run(name, func(t *testing.T) {
			withCloud(t, func(t *testing.T, c *Cloud) {
				r := request("11.0", "n1")
				tt.change(&r)
				if err := begin(t, c, r); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v\nwant %s", err, tt.want)
				}
				if err := c.Delete(t.Context(), r.Job); err != nil {
					t.Error(err)
				}
				nothingLeft(t, c)
			})
		})
	}
}

// An image whose data have not come yet is refused by its state.
func TestAnImageThatIsNotActive(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		queued, err := images.Create(t.Context(), c.glance.api, images.CreateOpts{Name: "coming", ContainerFormat: "bare", DiskFormat: "raw"}).Extract()
		if err != nil {
			t.Fatal(err)
		}
		r := request("16.0", "n1")
		r.Image.Name = "coming"
		if err := begin(t, c, r); err == nil || !strings.Contains(err.Error(), `image "coming" is queued: VMs start from active ones only`) {
			t.Error(err)
		}
		if err := images.Delete(t.Context(), c.glance.api, queued.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
	})
}

// A network that no switch of the host is on makes a server fail, and leaves nothing.
func TestAPortThatCannotBeBound(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		api := c.neutron.api
		elsewhere, err := networks.Create(t.Context(), api, networks.CreateOpts{Name: "elsewhere"}).Extract()
		if err != nil {
			t.Fatal(err)
		}
		opts := subnets.CreateOpts{NetworkID: elsewhere.ID, CIDR: "10.80.0.0/24", IPVersion: 4}
		if _, err := subnets.Create(t.Context(), api, opts).Extract(); err != nil {
			t.Fatal(err)
		}
		r := request("17.0", "n1")
		r.Network = "elsewhere"
		if err := begin(t, c, r); err == nil || !strings.Contains(err.Error(), "Binding failed for port") {
			t.Error(err)
		}
		if err := c.Delete(t.Context(), r.Job); err != nil {
			t.Error(err)
		}
		if err := networks.Delete(t.Context(), api, elsewhere.ID).ExtractErr(); err != nil {
			t.Errorf("something is left in the network: %v", err)
		}
	})
}

// Virtual functions are ports of their own kind, which nova binds to the host. If a node has too few, that is a sentence,
// and the ports go, too. A compute host of the recorded cloud has two.
func TestVirtualFunctions(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		first := request("12.0", "n1")
		first.VFNetwork, first.Servers[0].VFs = "guests", []VF{{MAC: "02:00:00:01:12:00"}, {MAC: "02:00:00:01:12:01"}}
		if err := begin(t, c, first); err != nil {
			t.Fatal(err)
		}
		pages, err := ports.List(c.neutron.api, ports.ListOpts{Description: string(c.mark(first.Job))}).AllPages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var bound []portsbinding.PortsBindingExt
		if err := ports.ExtractPortsInto(pages, &bound); err != nil || len(bound) != 3 {
			t.Errorf("ports %+v, %v", bound, err)
		}
		direct := slices.DeleteFunc(bound, func(p portsbinding.PortsBindingExt) bool { return p.VNICType != "direct" })
		if len(direct) != 2 {
			t.Errorf("%d ports of virtual functions, want 2: %+v", len(direct), direct)
		}
		for _, port := range direct {
			if port.HostID != "n1" || port.VIFType != "hw_veb" || !strings.HasPrefix(fmt.Sprint(port.Profile["pci_slot"]), "0000:01:00.") {
				t.Errorf("a port is not bound to a virtual function of n1: %+v", port)
			}
		}
		second := request("13.0", "n1")
		second.VFNetwork, second.Servers[0].VFs = "guests", []VF{{MAC: "02:00:00:01:13:00"}}
		if err := begin(t, c, second); err == nil || !strings.Contains(err.Error(), "Node n1 has too little left") {
			t.Errorf("the third VF of a node with two: %v", err)
		}
		for _, job := range []string{first.Job, second.Job} {
			if err := c.Delete(t.Context(), job); err != nil {
				t.Error(err)
			}
		}
		nothingLeft(t, c)
	})
}

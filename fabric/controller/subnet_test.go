package controller

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/opensm"
	"github.com/slurm-v/slurm-v/fabric/opensm/opensmtest"
)

// The site's own text, with a partition of two servers.
const (
	server, otherServer = fabric.GUID(0x7cfe900300000021), fabric.GUID(0x7cfe900300000031)
	storage             = fabric.Tag(0x0042)

	sitePartitions = `# the site's own
Default=0x7fff, ipoib : ALL=full ;
storage=0x0042, ipoib, defmember=full :
	0x7cfe900300000021,
	0x7cfe900300000031 ;`
)

// A subnetBench is a controller with a real OpenSM, whose fabric is simulated.
type subnetBench struct {
	*bench
	fabric *opensmtest.Fabric
	began  time.Time // when the last job began, or ended
}

// newSubnetBench makes a fabric with the ports of these jobs, and two P_Keys for them.
func newSubnetBench(t *testing.T, jobs ...uint32) *subnetBench {
	t.Helper()
	ports := []fabric.GUID{server, otherServer}
	for _, job := range jobs {
		ports = append(ports, portsOfJob(job)...)
	}
	s := &subnetBench{bench: newBench(t), fabric: opensmtest.New(t, ports...)}
	if err := os.WriteFile(s.fabric.Partitions, []byte(sitePartitions), 0o640); err != nil {
		t.Fatal(err)
	}
	s.fabric.StartOpenSM(t)
	for _, entry := range s.fabric.Env(opensmtest.SM) { // of smpquery, which the controller starts
		if name, value, _ := strings.Cut(entry, "="); os.Getenv(name) != value {
			t.Setenv(name, value)
		}
	}
	t.Chdir(s.fabric.Dir) // smpquery's simulation leaves files there
	s.Now, s.Patience = time.Now, 5*time.Second
	s.Site.Cooling = 0
	s.Site.PKey = config.PKeyPool{Pool: config.Tags{{First: 0x1000, Last: 0x1001}}, PartitionsFile: s.fabric.Partitions, OpenSMPIDFile: s.fabric.PIDFile}
	s.Subnet = openSM{site: s.Site.PKey, warn: s.warn}
	return s
}

// portsOfJob are those of a job with a VM on each of two nodes.
func portsOfJob(job uint32) []fabric.GUID {
	return []fabric.GUID{fabric.PortGUID(job, 0, 0), fabric.PortGUID(job, 1, 0)}
}

func (s *subnetBench) begin(job uint32, want fabric.Tag) {
	s.t.Helper()
	s.began = time.Now()
	if got := s.mustStart(run(job, 0), "pkey:1,vms:1,vfs:1").Tags(fabric.PKey); len(got) != 1 || got[0] != want {
		s.t.Fatalf("job %d has the P_Keys %v, want %s", job, got, want.Text(fabric.PKey))
	}
	s.t.Logf("job %d has its P_Key after %v", job, time.Since(s.began).Round(time.Millisecond))
	s.await(want, opensm.Full, portsOfJob(job)...)
	s.t.Logf("its ports are members after %v", time.Since(s.began).Round(time.Millisecond))
}

// await waits until the tables of ports say this of a P_Key.
func (s *subnetBench) await(pkey fabric.Tag, want opensm.Membership, ports ...fabric.GUID) {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now, err := opensm.Ports{}.Members(s.t.Context(), pkey, ports)
		as := err == nil
		for _, port := range ports {
			as = as && now[port] == want
		}
		if as {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the ports are %v of %s, want %s; %v", now, pkey.Text(fabric.PKey), want, err)
		}
	}
}

// wantMembers checks what the tables of ports say now.
func (s *subnetBench) wantMembers(pkey fabric.Tag, want opensm.Membership, ports ...fabric.GUID) {
	s.t.Helper()
	now := opensmtest.Patiently(s.t, func(ctx context.Context) (map[fabric.GUID]opensm.Membership, error) {
		return opensm.Ports{}.Members(ctx, pkey, ports)
	})
	for _, port := range ports {
		if now[port] != want {
			s.t.Errorf("port %s is a %s member of %s, want %s", port.Hex(), now[port], pkey.Text(fabric.PKey), want)
		}
	}
}

// releases reports whether a sweep lets the job's P_Key go.
func (s *subnetBench) releases(ctx context.Context, job uint32) bool {
	s.t.Helper()
	if _, err := s.Sweep(ctx); err != nil {
		s.t.Log(err)
	}
	entries, err := s.Entries(s.t.Context(), job)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(entries) == 0
}

func TestPKeysWithARealOpenSM(t *testing.T) {
	s := newSubnetBench(t, 7, 8, 9)
	s.await(storage, opensm.Full, server, otherServer)
	s.begin(7, 0x1000)
	s.begin(8, 0x1001)
	s.wantMembers(0x1001, opensm.None, append(portsOfJob(7), server, otherServer)...)
	s.wantMembers(0x1000, opensm.None, append(portsOfJob(8), server, otherServer)...)

	s.end(run(7, 0))
	s.began = time.Now()
	s.state("n1", id(7, 0))
	s.state("n2", id(7, 0))
	s.fabric.KillOpenSM(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if s.releases(ctx, 7) {
		t.Fatal("the P_Key of job 7 is free, and no subnet manager has confirmed that")
	}
	if _, err := s.start(run(10, 0), "pkey:1,vms:1,vfs:1"); !errors.Is(err, ledger.ErrExhausted) {
		t.Fatalf("job 10: error %v; job 7's ports still have its P_Key", err)
	}
	s.change(func(w *world) { delete(w.Jobs, 10) })

	s.fabric.StartOpenSM(t)
	for !s.releases(t.Context(), 7) {
		if time.Since(s.began) > 5*time.Minute {
			t.Fatal("the P_Key of job 7 does not come back")
		}
	}
	t.Logf("job 7's P_Key is free %v after its end, most of which OpenSM was dead", time.Since(s.began).Round(time.Millisecond))
	s.wantMembers(0x1000, opensm.None, portsOfJob(7)...)
	s.begin(9, 0x1000)
	s.wantMembers(0x1000, opensm.None, append(portsOfJob(7), portsOfJob(8)...)...)
	s.await(0x1001, opensm.Full, portsOfJob(8)...)
	s.wantMembers(storage, opensm.Full, server, otherServer)
	if text, err := os.ReadFile(s.fabric.Partitions); err != nil || !strings.HasPrefix(string(text), sitePartitions) {
		t.Errorf("the site's text is now\n%s, %v", text, err)
	}
}

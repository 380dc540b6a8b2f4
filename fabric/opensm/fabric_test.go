package opensm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/opensm/opensmtest"
)

// The fabric of the tests: hosts of the site, and the VFs of two jobs.
var (
	servers = []fabric.GUID{0x7cfe900300000021, 0x7cfe900300000031}
	one     = vfsOf(7, 2)
	two     = append(vfsOf(8, 2), servers[1]) // one of its ports is a node's own
)

const site = `# the site's own
Default=0x7fff, ipoib : ALL=full ;
storage=0x0042, ipoib, defmember=full :
	0x7cfe900300000021,
	0x7cfe900300000031 ;`

// A lab is a fabric with its subnet manager.
type lab struct {
	*opensmtest.Fabric
	Ports
	changed time.Time // when the partitions were last changed
}

func newLab(t *testing.T) *lab {
	t.Helper()
	f := opensmtest.New(t, slices.Concat(servers, one, two[:2])...)
	if err := os.WriteFile(f.Partitions, []byte(site), 0o640); err != nil {
		t.Fatal(err)
	}
	f.StartOpenSM(t)
	return &lab{f, Ports{Env: f.Env(opensmtest.SM), Dir: f.Dir}, time.Now()}
}

// set gives a job its partition, or takes it with no members, and returns what Apply says.
func (l *lab) set(t *testing.T, pkey fabric.Tag, members ...fabric.GUID) (note string) {
	t.Helper()
	l.changed = time.Now()
	note, err := Apply(t.Context(), l.Partitions, l.PIDFile, func(p Partitions) error {
		if p[pkey] = members; members == nil {
			delete(p, pkey)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return note
}

// Confirm returns when all these ports are full members of the partition.
func (l *lab) Confirm(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	for {
		now, err := l.Members(ctx, pkey, guids)
		left := slices.DeleteFunc(slices.Clone(guids), func(g fabric.GUID) bool { return now[g] == Full })
		if err == nil && len(left) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the ports %s are not its full members: %w", some(left), context.Cause(ctx))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

type confirm func(context.Context, fabric.Tag, []fabric.GUID) error

func (l *lab) mustConfirm(t *testing.T, what string, c confirm, pkey fabric.Tag, guids ...fabric.GUID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c(ctx, pkey, guids); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	t.Logf("%s: confirmed %v after the last change", what, time.Since(l.changed).Round(time.Millisecond))
}

// mustNotConfirm is about the P_Key of the first job.
func mustNotConfirm(t *testing.T, c confirm, want string, guids ...fabric.GUID) {
	t.Helper()
	opensmtest.Patiently(t, func(all context.Context) (none struct{}, err error) {
		ctx, cancel := context.WithTimeoutCause(all, 1500*time.Millisecond, errors.New("enough"))
		defer cancel()
		if err = c(ctx, 0x1004, guids); err == nil {
			t.Fatalf("it is confirmed, want an error that says %q", want)
		}
		if strings.Contains(err.Error(), want) {
			return none, nil
		}
		return none, fmt.Errorf("%w; want an error that says %q", err, want)
	})
}

func (l *lab) checkMembers(t *testing.T, pkey fabric.Tag, want Membership, guids ...fabric.GUID) {
	t.Helper()
	got := opensmtest.Patiently(t, func(ctx context.Context) (map[fabric.GUID]Membership, error) { return l.Members(ctx, pkey, guids) })
	for g, m := range got {
		if m != want {
			t.Errorf("port %s is a %s member of %s, want %s", g.Hex(), m, pkey.Text(fabric.PKey), want)
		}
	}
}

// first returns the first P_Key in a port's table, which IPoIB uses.
func (l *lab) first(t *testing.T, g fabric.GUID) uint16 {
	t.Helper()
	table := opensmtest.Patiently(t, func(ctx context.Context) ([]uint16, error) { return l.table(ctx, g) })
	if len(table) == 0 {
		t.Fatalf("port %s has no P_Keys", g.Hex())
	}
	return table[0]
}

func TestTwoJobsOnAFabric(t *testing.T) {
	l := newLab(t)
	l.mustConfirm(t, "the site's own partition", l.Confirm, 0x0042, servers...)

	l.set(t, 0x1004, one...)
	l.mustConfirm(t, "the first job", l.Confirm, 0x1004, one...)
	l.set(t, 0x1005, two...)
	l.mustConfirm(t, "the second job", l.Confirm, 0x1005, two...)
	l.checkApart(t)
	mustNotConfirm(t, l.Confirm, "are not its full members", two...)
	mustNotConfirm(t, l.ConfirmGone, "still have it", one...)

	l.KillOpenSM(t)
	if note := l.set(t, 0x1004); !strings.Contains(note, "OpenSM does not run on this host; the change takes effect when it starts") {
		t.Errorf("note = %q", note)
	}
	// A port that nobody answers for has not gone.
	mustNotConfirm(t, l.ConfirmGone, "still have it", one...)
	l.StartOpenSM(t)
	l.mustConfirm(t, "the end of the first job", l.ConfirmGone, 0x1004, one...)
	l.mustConfirm(t, "the second job, with a new OpenSM", l.Confirm, 0x1005, two...)
	l.checkMembers(t, 0x0042, Full, servers...)

	l.set(t, 0x1005)
	l.mustConfirm(t, "the end of the second job", l.ConfirmGone, 0x1005, two...)
	l.checkMembers(t, 0x0042, Full, servers...)
	text, err := os.ReadFile(l.Partitions)
	if err != nil || !strings.HasPrefix(string(text), site) {
		t.Errorf("the site's text is now\n%s, %v", text, err)
	}
	if strings.Contains(l.Log(), "ERR ") || strings.Contains(l.Log(), "PARSE") {
		t.Errorf("OpenSM says\n%s", l.Log())
	}
}

// checkApart checks that VFs have nothing in common but their job's partition.
func (l *lab) checkApart(t *testing.T) {
	t.Helper()
	l.checkMembers(t, 0x1005, None, one...)
	l.checkMembers(t, 0x1004, None, slices.Concat(two, servers)...)
	l.checkMembers(t, 0x0042, None, slices.Concat(one, two[:2])...)
	l.checkMembers(t, defaultKey, Limited, slices.Concat(one, two[:2])...)
	l.checkMembers(t, defaultKey, Full, servers...)
	for g, want := range map[fabric.GUID]uint16{one[0]: 0x9004, two[0]: 0x9005, servers[0]: 0xffff, servers[1]: 0xffff} {
		if got := l.first(t, g); got != want {
			t.Errorf("the first P_Key of %s is %#04x, want %#04x", g.Hex(), got, want)
		}
	}
}

// The port of a VF appears after the job has got its partition, and vanishes with its VM.
func TestPortsThatComeAndGo(t *testing.T) {
	l := newLab(t)
	l.Unlink(t, one[1])
	l.mustConfirm(t, "a port that has gone", l.ConfirmGone, 0x1004, one[1])
	l.checkAbsent(t, one[1])
	l.set(t, 0x1004, one...)
	l.mustConfirm(t, "the port that is there", l.Confirm, 0x1004, one[0])
	mustNotConfirm(t, l.Confirm, one[1].Hex()+" are not its full members", one...)
	l.Link(t, one[1])
	l.mustConfirm(t, "the port that has come", l.Confirm, 0x1004, one...)
}

// checkAbsent waits until the subnet manager has noticed it.
func (l *lab) checkAbsent(t *testing.T, g fabric.GUID) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		got, err := l.Members(t.Context(), 0x1004, []fabric.GUID{g})
		if err == nil && got[g] == Absent {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v, %v", got, err)
		}
	}
}

// To a limited member of the default partition, the ports of others seem to be absent.
func TestAHostThatDoesNotSeeAllPortsConfirmsNothing(t *testing.T) {
	l := newLab(t)
	l.set(t, 0x1004, one...)
	l.mustConfirm(t, "the job", l.Confirm, 0x1004, one...)
	l.set(t, 0x1005, two...)
	l.mustConfirm(t, "another job", l.Confirm, 0x1005, two...)
	limited := Ports{Env: l.Fabric.Env(two[0]), Dir: l.Fabric.Dir}
	out, err := limited.table(t.Context(), one[0])
	if err != nil || out != nil {
		t.Fatalf("it sees the port: %v, %v", out, err)
	}
	mustNotConfirm(t, limited.ConfirmGone, "this host is no full member of the default partition", one...)
}

func TestParseTable(t *testing.T) {
	got, err := parseTable("   0: 0x9004 0x7fff 0x0000\n   8: 0x0000 0x8042\n64 pkeys capacity for this port\n")
	if want := []uint16{0x9004, 0x7fff, 0x8042}; err != nil || !slices.Equal(got, want) {
		t.Errorf("read %#x, %v", got, err)
	}
	if got, err := parseTable("   0: 0x0000 0x0000\n"); err != nil || got == nil || len(got) != 0 {
		t.Errorf("an empty table is %v, %v", got, err)
	}
	if got, err := parseTable("64 pkeys capacity for this port\n"); err == nil {
		t.Errorf("no table is %v", got)
	}
}

// Why Put refuses what it refuses: this is what OpenSM makes of such files.
func TestWhatOpenSMMakesOfSuchFiles(t *testing.T) {
	tests := map[string]struct {
		text     string
		storage  Membership // of the servers in the site's own partition,
		standard Membership // and in the default one
		vfs      Membership // of the VFs in the default partition
	}{
		"a good one":               {site, Full, Full, Full},
		"a good one with a job":    {site + "\n" + Partitions{0x1004: one}.render(), Full, Full, Limited},
		"lines of Windows":         {strings.ReplaceAll(site, "\n", "\r\n"), None, Full, Full},
		"a line that is none":      {site + "\nx=0x1004 : 0x1G ;", None, Full, Full},
		"no partition":             {"# nothing yet\n", None, Full, Full},
		"none but that of a job":   {Partitions{0x1004: one}.render(), None, Limited, Limited},
		"one that does not end":    {strings.TrimSuffix(site, ";") + "\n" + Partitions{0x1004: one}.render(), None, Full, Full},
		"the default one below":    {Partitions{0x1004: one}.render() + site, Full, Full, Full},
		"two with the same number": {site + "\n" + Partitions{0x0042: one}.render(), Full, Full, Limited},
	}
	f := opensmtest.New(t, slices.Concat(servers, one)...)
	l := &lab{f, Ports{Env: f.Env(opensmtest.SM), Dir: f.Dir}, time.Now()}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(f.Partitions, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			f.StartOpenSM(t)
			defer f.KillOpenSM(t)
			l.checkMembers(t, 0x0042, tt.storage, servers...)
			l.checkMembers(t, defaultKey, tt.standard, servers...)
			l.checkMembers(t, defaultKey, tt.vfs, one...)
		})
	}
}

// The subnet manager sends those who ask for a virtual port to the physical one.
func TestTheAnswerOfAnotherPort(t *testing.T) {
	const answer = "# Node info: Lid 8\nGuid:............................0x7cfe900300cb7400\nPortGuid:........................0x7cfe900300cb7401\nPartCap:.........................64\n"
	if err := answeredBy(0x7cfe900300cb7401, answer); err != nil {
		t.Errorf("its own answer: %v", err)
	}
	if err := answeredBy(one[0], answer); !errors.Is(err, errVirtual) || !strings.Contains(err.Error(), "port 0x7cfe900300cb7401 answers for it") {
		t.Errorf("error = %v", err)
	}
	if err := answeredBy(one[0], "Guid: 1\n"); err == nil || errors.Is(err, errVirtual) {
		t.Errorf("error = %v", err)
	}
}

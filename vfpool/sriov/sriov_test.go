package sriov_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

var (
	ctx     = context.Background()
	account = owner.IDs{UID: 1000, GID: 100}
)

// plain are the settings that every job's VFs get.
func plain() device.Settings {
	return device.Settings{MAC: "02:53:56:00:00:01", SpoofCheck: true, Link: device.LinkAuto}
}

// everything sets as much as the card can.
func everything(c device.Caps) device.Settings {
	s := plain()
	if c.VLAN {
		s.VLAN = 100
	}
	if c.MinRate {
		s.MinRate = 1000
	}
	if c.MaxRate {
		s.MaxRate = 2000
	}
	if c.GUID || c.PKeyIndex {
		s.PortGUID, s.PKey = "02:50:00:01:07:90:00:81", 0x9004
	}
	if c.GUID {
		s.NodeGUID = "02:60:00:01:07:90:00:81"
	}
	return s
}

// drivers are the rows of the table of drivers, as cards.
var drivers = map[string]sriovtest.Card{
	"mlx5 Ethernet":   {Driver: "mlx5_core"},
	"mlx5 InfiniBand": {Driver: "mlx5_core", InfiniBand: true},
	"mlx4 Ethernet":   {Driver: "mlx4_core"},
	"mlx4 InfiniBand": {Driver: "mlx4_core", InfiniBand: true},
	"ice":             {Driver: "ice"},
	"bnxt":            {Driver: "bnxt_en"},
	"i40e":            {Driver: "i40e"},
	"ixgbe":           {Driver: "ixgbe"},
	"old ixgbe":       {Driver: "ixgbe", NoZeroMAC: true},
	"igb":             {Driver: "igb"},
	"cxi":             {Driver: "cxi_core"},
	"netdevsim":       {Driver: "netdevsim"},
	"unknown":         {Driver: "acme"},
}

// card completes one of drivers.
func card(c sriovtest.Card) sriovtest.Card {
	c.Name, c.VFs = "eth0", 2
	return c
}

// first returns the only card's PF, and its VF 1.
func first(t *testing.T, n *sriov.Cards) (device.PF, device.VF) {
	t.Helper()
	pfs, err := n.PFs()
	if err != nil || len(pfs) != 1 || len(pfs[0].VFs) != 2 {
		t.Fatalf("PFs = %+v, %v", pfs, err)
	}
	return pfs[0], pfs[0].VFs[1]
}

func TestOneJob(t *testing.T) {
	for name, c := range drivers {
		for _, hostDriver := range []string{"", "somevf", "vfio-pci"} {
			t.Run(name+" bound to "+hostDriver, func(t *testing.T) {
				c := card(c)
				c.HostDriver = hostDriver
				testOneJob(t, sriovtest.New(t, c))
			})
		}
	}
}

func testOneJob(t *testing.T, fake *sriovtest.Node) {
	node := fake.Open()
	pf, vf := first(t, node)
	before := fake.Snapshot(t)
	original, err := node.State(ctx, vf)
	if err != nil {
		t.Fatal(err)
	}
	want := everything(pf.Caps)
	if err := errors.Join(node.Apply(ctx, vf, want), node.Attach(ctx, vf, account)); err != nil {
		t.Fatal(err)
	}
	checkAttached(t, node, pf, vf, want)
	use(t, fake, vf)
	if err := node.Restore(ctx, vf, original); err != nil {
		t.Fatal(err)
	}
	if after := clean(fake, t); after != before {
		t.Errorf("left\n%s\nbefore the job it was\n%s", after, before)
	}
	if err := node.Restore(ctx, vf, original); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// checkAttached checks the VF that a job has been given.
func checkAttached(t *testing.T, node *sriov.Cards, pf device.PF, vf device.VF, want device.Settings) {
	t.Helper()
	got, err := node.State(ctx, vf)
	if err != nil {
		t.Fatal(err)
	}
	if got.Driver != "vfio-pci" || got.Owner != account || got.Mode != 0o600 {
		t.Errorf("attached: driver %s, owner %v %04o", got.Driver, got.Owner, got.Mode)
	}
	s := got.Settings
	if pf.Caps.MAC && s.MAC != want.MAC || s.VLAN != want.VLAN || s.MinRate != want.MinRate || s.MaxRate != want.MaxRate ||
		pf.Caps.SpoofCheck && !s.SpoofCheck || s.Trust {
		t.Errorf("applied %+v, want %+v", s, want)
	}
	if pf.Caps.LinkState && s.Link != device.LinkAuto {
		t.Errorf("the VF's link is left in state %s", s.Link)
	}
	if s.NodeGUID != want.NodeGUID || s.PortGUID != want.PortGUID || pf.Caps.PKeyIndex != (s.PKeyMap == "1/0=3 1/1=1") {
		t.Errorf("GUIDs %s, %s, P_Keys %q, want %+v", s.NodeGUID, s.PortGUID, s.PKeyMap, want)
	}
}

// use does what a VM does to a VF between its start and its end.
func use(t *testing.T, fake *sriovtest.Node, vf device.VF) {
	t.Helper()
	release, err := fake.Hold(vf.PCI)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// clean returns the node's snapshot. If a driver refuses the zero MAC or the zero GUID, its
// VFs have the substitute for it.
func clean(fake *sriovtest.Node, t *testing.T) string {
	return substitutes.Replace(fake.Snapshot(t))
}

var substitutes = strings.NewReplacer("02:00:00:00:00:00", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00:00:00")

func TestTheTableAgreesWithTheModels(t *testing.T) {
	asked := map[string]func(*device.Settings){
		"vlan":        func(s *device.Settings) { s.VLAN = 100 },
		"min_tx_rate": func(s *device.Settings) { s.MinRate = 1000 },
		"max_tx_rate": func(s *device.Settings) { s.MaxRate = 2000 },
	}
	attributes := map[string]sriov.Attribute{"vlan": sriov.VLAN, "min_tx_rate": sriov.Rates, "max_tx_rate": sriov.Rates}
	for name, c := range drivers {
		for attribute, ask := range asked {
			t.Run(name+" "+attribute, func(t *testing.T) {
				if c.Driver == "mlx4_core" && attribute == "max_tx_rate" {
					t.Skip("the driver takes a maximum which it does not enforce")
				}
				fake := sriovtest.New(t, card(c))
				node := fake.Open()
				_, vf := first(t, node)
				want := plain()
				ask(&want)
				before := fake.Snapshot(t)
				refused := fake.Links().Set("eth0", 0, attributes[attribute], want)
				err := node.Apply(ctx, vf, want)
				var unsupported *sriov.UnsupportedError
				switch {
				case refused == nil && err != nil:
					t.Errorf("the driver can, but: %v", err)
				case refused != nil && !errors.As(err, &unsupported):
					t.Errorf("the driver says %v, but the error is %v", refused, err)
				case refused != nil && *unsupported != sriov.UnsupportedError{PF: "eth0", Driver: c.Driver, Attribute: attribute}:
					t.Errorf("error = %+v", unsupported)
				case refused != nil && fake.Snapshot(t) != before:
					t.Error("it is refused, but something has changed")
				}
			})
		}
	}
}

func TestWhatDriversRefuse(t *testing.T) {
	tests := map[string]struct {
		card   sriovtest.Card
		change func(*device.Settings)
		want   string // in the error; "" if no error is expected
	}{
		"igb takes a maximum up to its speed":          {sriovtest.Card{Driver: "igb", Speed: 1000}, maximum(1000), ""},
		"igb takes none above it":                      {sriovtest.Card{Driver: "igb", Speed: 1000}, maximum(1001), "max_tx_rate 1001: the driver igb takes 0 to 1000 Mb/s here; give a maximum in that range"},
		"igb takes none while the link is down":        {sriovtest.Card{Driver: "igb", Down: true}, maximum(500), "rate min_tx_rate 0 max_tx_rate 500: invalid argument (EINVAL); the driver igb sets rates only while the link is up: ip link set eth0 up"},
		"igb needs no link for no rate":                {sriovtest.Card{Driver: "igb", Down: true}, maximum(0), ""},
		"ixgbe takes 11":                               {sriovtest.Card{Driver: "ixgbe"}, maximum(11), ""},
		"ixgbe takes no less":                          {sriovtest.Card{Driver: "ixgbe"}, maximum(10), "the driver ixgbe takes 11 to 10000 Mb/s here"},
		"ixgbe takes none at another speed":            {sriovtest.Card{Driver: "ixgbe", Speed: 1000}, maximum(500), "the driver ixgbe of eth0 cannot set max_tx_rate of a VF"},
		"ixgbe at another speed without rates":         {sriovtest.Card{Driver: "ixgbe", Speed: 1000}, maximum(0), ""},
		"i40e raises what is below 50":                 {sriovtest.Card{Driver: "i40e"}, maximum(49), "the driver i40e takes 50 to 10000 Mb/s here"},
		"ice adds the minima up":                       {sriovtest.Card{Driver: "ice"}, minimum(10001), "EINVAL); the driver ice refuses: a rate above the 10000 Mb/s of the link, or minima that together are above it?"},
		"ice takes no minimum with DCB":                {sriovtest.Card{Driver: "ice", DCB: true}, minimum(100), "(EOPNOTSUPP); the driver ice or the card's firmware cannot"},
		"mlx5 takes minima above the speed":            {sriovtest.Card{Driver: "mlx5_core"}, minimum(10001), ""},
		"netdevsim keeps 16 bits":                      {sriovtest.Card{Driver: "netdevsim"}, minimum(100000), "reads back min_tx_rate 34464 max_tx_rate 0"},
		"a minimum above the maximum":                  {sriovtest.Card{Driver: "mlx5_core"}, func(s *device.Settings) { s.MinRate, s.MaxRate = 2, 1 }, "the minimum is above the maximum"},
		"a VLAN that there is not":                     {sriovtest.Card{Driver: "igb"}, func(s *device.Settings) { s.VLAN = 4095 }, "vlan 4095: no such VLAN"},
		"a card in switchdev mode":                     {sriovtest.Card{Driver: "mlx5_core", Switchdev: true}, maximum(0), "is the card in switchdev mode (devlink dev eswitch show pci/0000:01:00.0)?"},
		"a card whose VFs cannot be read back":         {sriovtest.Card{Driver: "mlx5_core", Unreadable: true}, maximum(5), ""},
		"what is not asked for is no error: spoofchk":  {sriovtest.Card{Driver: "acme"}, maximum(0), ""},
		"what is not asked for is no error: addresses": {sriovtest.Card{Driver: "mlx4_core", InfiniBand: true}, maximum(0), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := sriovtest.New(t, card(tt.card))
			node := fake.Open()
			_, vf := first(t, node)
			original, err := node.State(ctx, vf)
			if err != nil {
				t.Fatal(err)
			}
			before, want := fake.Snapshot(t), plain()
			tt.change(&want)
			err = node.Apply(ctx, vf, want)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error\n%v\nwant\n%s", err, tt.want)
			}
			if err := node.Restore(ctx, vf, original); err != nil && !tt.card.Switchdev {
				t.Error(err)
			}
			if clean(fake, t) != before && !tt.card.Switchdev {
				t.Errorf("left %s", fake.Snapshot(t))
			}
		})
	}
}

func maximum(rate uint32) func(*device.Settings) {
	return func(s *device.Settings) { s.MaxRate = rate }
}

func minimum(rate uint32) func(*device.Settings) {
	return func(s *device.Settings) { s.MinRate = rate }
}

// A trial is a VF and a call on it that can fail, or be killed, at any step.
type trial struct {
	fake     *sriovtest.Node
	node     *sriov.Cards
	vf       device.VF
	before   string
	original device.State
	want     device.Settings
}

func newTrial(t *testing.T, c sriovtest.Card) *trial {
	t.Helper()
	j := &trial{fake: sriovtest.New(t, c)}
	j.node = j.fake.Open()
	pf, vf := first(t, j.node)
	j.vf, j.want, j.before = vf, everything(pf.Caps), j.fake.Snapshot(t)
	var err error
	if j.original, err = j.node.State(ctx, vf); err != nil {
		t.Fatal(err)
	}
	return j
}

// calls are in order: each needs those before it.
var calls = []string{"read", "apply", "attach", "restore"}

func (j *trial) call(name string) (err error) {
	switch name {
	case "read":
		_, err = j.node.State(ctx, j.vf)
	case "apply":
		err = j.node.Apply(ctx, j.vf, j.want)
	case "attach":
		err = j.node.Attach(ctx, j.vf, account)
	default:
		err = j.node.Restore(ctx, j.vf, j.original)
	}
	return err
}

// upTo makes the calls that come before the one with that name.
func (j *trial) upTo(t *testing.T, name string) {
	t.Helper()
	for _, call := range calls[:slices.Index(calls, name)] {
		if err := j.call(call); err != nil {
			t.Fatal(err)
		}
	}
	if name == "restore" {
		use(t, j.fake, j.vf)
	}
}

func (j *trial) checkClean(t *testing.T) {
	t.Helper()
	if err := j.node.Restore(ctx, j.vf, j.original); err != nil {
		t.Errorf("restore: %v", err)
	}
	if after := clean(j.fake, t); after != j.before {
		t.Errorf("left\n%s\nbefore the job it was\n%s", after, j.before)
	}
}

// matrixCards differ in the steps that their operations take.
var matrixCards = map[string]sriovtest.Card{
	"mlx5 that was unbound":        {Driver: "mlx5_core"},
	"igb bound to igbvf":           {Driver: "igb", HostDriver: "igbvf"},
	"i40e bound to vfio-pci":       {Driver: "i40e", HostDriver: "vfio-pci"},
	"an old ixgbe that is unbound": {Driver: "ixgbe", NoZeroMAC: true},
	"mlx5 on InfiniBand":           {Driver: "mlx5_core", InfiniBand: true, HostDriver: "mlx5_core"},
	"mlx4 on InfiniBand":           {Driver: "mlx4_core", InfiniBand: true, HostDriver: "vfio-pci"},
}

// eachEffect makes a call once for everything that it asks of the kernel, with an
// answer of the test's own. The test leaves the node clean, or without the VF.
func eachEffect(t *testing.T, test func(t *testing.T, j *trial, call string, answer func(func() error))) {
	for name, c := range matrixCards {
		for _, call := range calls {
			t.Run(name+" "+call, func(t *testing.T) {
				t.Parallel()
				j := newTrial(t, card(c))
				for k, asked := 0, true; asked; k++ {
					if !strings.Contains(j.fake.Snapshot(t), "eth0 1 {") {
						j = newTrial(t, card(c))
					}
					j.upTo(t, call)
					w := &wiretap{job: j, skip: k}
					test(t, j, call, w.answer)
					if t.Failed() {
						t.Fatalf("at effect %d of %s, %q", k, call, w.op)
					}
					asked = w.op != ""
				}
			})
		}
	}
}

// A wiretap answers instead of the kernel, from the request after the first skip ones,
// and in later requests of the same kind.
type wiretap struct {
	job  *trial
	skip int
	op   string
}

func (w *wiretap) answer(effect func() error) {
	w.job.fake.OnEffect = func(op string) error {
		if w.skip--; w.skip >= 0 {
			return nil
		}
		w.op = cmp.Or(w.op, op)
		if op != w.op {
			return nil
		}
		return effect()
	}
}

func TestACardThatIsBusyForAMoment(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EBUSY, unix.EAGAIN} {
		eachEffect(t, func(t *testing.T, j *trial, call string, answer func(func() error)) {
			times := 0
			answer(func() error {
				if times++; times <= 2 {
					return errno
				}
				return nil
			})
			if err := j.call(call); err != nil {
				t.Errorf("%s: %v", call, err)
			}
			j.fake.OnEffect = nil
			j.checkClean(t)
		})
	}
}

func TestAnErrorAtEveryStep(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EBUSY, unix.EAGAIN, unix.EINVAL} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			eachEffect(t, func(t *testing.T, j *trial, call string, answer func(func() error)) {
				failed := false
				answer(func() error { failed = true; return errno })
				err := j.call(call)
				j.fake.OnEffect = nil
				checkError(t, err, errno, failed && call != "restore")
				j.checkClean(t)
			})
		})
	}
}

// checkError checks that an error names the cause. A restore may succeed by another way.
func checkError(t *testing.T, err, errno error, must bool) {
	t.Helper()
	if err == nil {
		if must {
			t.Error("no error")
		}
		return
	}
	var full *sriov.Error
	if !errors.As(err, &full) || !errors.Is(err, errno) {
		t.Errorf("error = %v", err)
		return
	}
	if full.PF != "eth0" || full.VF != 1 || full.PCI == "" || full.Attribute == "" || full.Advice == "" {
		t.Errorf("error = %#v", full)
	}
}

func TestAVFThatVanishesAtEveryStep(t *testing.T) {
	eachEffect(t, func(t *testing.T, j *trial, call string, answer func(func() error)) {
		gone := false
		answer(func() error {
			if gone {
				return nil
			}
			gone = true
			return j.fake.Vanish(j.vf.PCI)
		})
		err := j.call(call)
		switch {
		case call == "restore" && err != nil:
			t.Errorf("there is nothing to restore, but: %v", err)
		case call != "restore" && gone:
			checkError(t, err, sriov.ErrGone, true)
		}
		if gone {
			j.fake.OnEffect = nil
			if err := j.node.Restore(ctx, j.vf, j.original); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestADeathAtEveryStep(t *testing.T) {
	for name, c := range matrixCards {
		for _, call := range calls[1:] {
			t.Run(name+" "+call, func(t *testing.T) {
				t.Parallel()
				j := newTrial(t, card(c))
				for k, at := 0, "the first"; at != ""; k++ {
					j.upTo(t, call)
					at = j.die(t, call, k)
					j.reopen(t)
					if j.checkClean(t); t.Failed() {
						t.Fatalf("after a death before %q", at)
					}
				}
			})
		}
	}
}

// die makes a call that ends before its step k. It returns the name of that step, "" if
// the call has fewer steps.
func (j *trial) die(t *testing.T, call string, k int) (at string) {
	type death struct{}
	defer func() {
		if r := recover(); r != nil && r != (death{}) {
			panic(r)
		}
	}()
	j.node.Before = func(step string) {
		if k--; k < 0 {
			at = step
			panic(death{})
		}
	}
	if err := j.call(call); err != nil {
		t.Error(err)
	}
	return at
}

// reopen stands for a new process, which has nothing of the previous one's memory.
func (j *trial) reopen(t *testing.T) {
	t.Helper()
	again, err := sriovtest.Reopen(j.fake.Root)
	if err != nil {
		t.Fatal(err)
	}
	j.fake, j.node = again, again.Open()
}

func TestRestoreWhileTheVFIsInUse(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "igb", HostDriver: "igbvf"}))
	j.upTo(t, "restore")
	before := j.fake.Snapshot(t)
	release, err := j.fake.Hold(j.vf.PCI)
	if err != nil {
		t.Fatal(err)
	}
	err = j.call("restore")
	checkError(t, err, unix.EBUSY, true)
	if !strings.Contains(fmt.Sprint(err), "a program has the VF open") {
		t.Errorf("error = %v", err)
	}
	// Its owner may not open it again. Nothing else changes under the guest's feet.
	want := strings.Replace(before, ownedBy(t, account), ownedBy(t, owner.IDs{}), 1)
	if after := j.fake.Snapshot(t); after != want || want == before {
		t.Errorf("it is\n%s\nwant\n%s", after, want)
	}
	for _, call := range []string{"read", "apply"} {
		if err := j.call(call); !errors.Is(err, unix.EBUSY) {
			t.Errorf("%s: %v", call, err)
		}
	}
	release()
	j.checkClean(t)
}

// ixgbe sets no rate while the link is down. The VF is not what it was until the link is up again.
func TestRestoreOfARateWhileTheLinkIsDown(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "ixgbe"}))
	j.upTo(t, "restore")
	j.fake.Change(t, "eth0", func(c *sriovtest.Card) { c.Down = true })
	if err := j.call("restore"); err == nil {
		t.Errorf("no error, and it is\n%s\nbefore the job it was\n%s", j.fake.Snapshot(t), j.before)
	}
	j.fake.Change(t, "eth0", func(c *sriovtest.Card) { c.Down = false })
	j.checkClean(t)
}

// ownedBy is how a snapshot writes the owner of a VF's group file.
func ownedBy(t *testing.T, ids owner.IDs) string {
	t.Helper()
	text, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	return `"Owner":` + string(text)
}

// A program of the owner may have the VF open beside QEMU, and would block it for ever.
func TestRestoreEndsTheOwnersPrograms(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "igb", HostDriver: "igbvf"}))
	j.upTo(t, "restore")
	release, err := j.fake.Hold(j.vf.PCI)
	if err != nil {
		t.Fatal(err)
	}
	var ended []uint32
	j.fake.OnEnd = func(uid uint32) {
		if ended = append(ended, uid); uid == account.UID {
			release()
		}
	}
	j.checkClean(t)
	if !slices.Equal(ended, []uint32{account.UID}) {
		t.Errorf("ended programs of %v, want of %d", ended, account.UID)
	}
}

func TestRestoreEndsNothingWhereTheVFIsFree(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "igb", HostDriver: "igbvf"}))
	j.upTo(t, "restore")
	j.fake.OnEnd = func(uid uint32) { t.Errorf("ended programs of %d", uid) }
	j.checkClean(t)
}

func TestRestoreOfWhatIsAlreadyRestoredTouchesNothing(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "igb", HostDriver: "igbvf"}))
	j.upTo(t, "restore")
	j.checkClean(t)
	j.fake.OnEffect = func(op string) error {
		if op != "read" {
			t.Errorf("does %q", op)
		}
		return nil
	}
	j.checkClean(t)
}

func TestRestoreResetsWhatAGuestHadThoughNoSettingDiffers(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "mlx5_core", HostDriver: "vfio-pci"}))
	use(t, j.fake, j.vf)
	j.checkClean(t)
}

// The link of an igb may go down while a job's VF has a rate, which then stays.
func TestRestoreOfARateWithoutALink(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "igb"}))
	j.upTo(t, "restore")
	j.fake.Change(t, "eth0", func(c *sriovtest.Card) { c.Down = true })
	err := j.call("restore")
	checkError(t, err, unix.EINVAL, true)
	if !strings.Contains(fmt.Sprint(err), "ip link set eth0 up") {
		t.Errorf("error = %v", err)
	}
	j.fake.Change(t, "eth0", func(c *sriovtest.Card) { c.Down = false })
	j.checkClean(t)
}

func TestOtherOriginals(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "mlx5_core", HostDriver: "vfio-pci"}))
	site := device.Settings{MAC: "02:aa:00:00:00:01", VLAN: 7, QoS: 3, MinRate: 10, MaxRate: 20, Trust: true, Link: device.LinkEnable}
	if err := errors.Join(j.node.Apply(ctx, j.vf, site), j.node.Attach(ctx, j.vf, owner.IDs{UID: 64055, GID: 109})); err != nil {
		t.Fatal(err)
	}
	original, err := j.node.State(ctx, j.vf)
	if err != nil {
		t.Fatal(err)
	}
	if original.Settings != site {
		t.Errorf("read %+v, want %+v", original.Settings, site)
	}
	j.original, j.before = original, j.fake.Snapshot(t)
	j.upTo(t, "restore")
	j.checkClean(t)
}

func TestAttach(t *testing.T) {
	t.Run("loads vfio-pci", func(t *testing.T) {
		j := newTrial(t, card(sriovtest.Card{Driver: "igb"}))
		if err := errors.Join(j.fake.Unload("vfio-pci"), j.call("attach")); err != nil {
			t.Error(err)
		}
	})
	t.Run("says that vfio-pci is not there", func(t *testing.T) {
		j := newTrial(t, card(sriovtest.Card{Driver: "igb"}))
		j.fake.OnEffect = func(op string) error {
			if op == "load" {
				return errors.New("modprobe: FATAL: Module vfio-pci not found")
			}
			return nil
		}
		err := errors.Join(j.fake.Unload("vfio-pci"), j.call("attach"))
		if want := "load vfio-pci: modprobe: FATAL: Module vfio-pci not found; install the kernel's module vfio-pci"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error\n%v\nwant\n%s", err, want)
		}
	})
	t.Run("refuses a VF that is not alone in its group", func(t *testing.T) {
		j := newTrial(t, card(sriovtest.Card{Driver: "igb", OneGroup: true}))
		if err := j.call("attach"); err == nil || !strings.Contains(err.Error(), "its IOMMU group 101 has other devices (0000:01:10.0)") {
			t.Errorf("error = %v", err)
		}
	})
}

func TestAVFThatIsNoLongerTheSame(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "igb"}))
	j.vf.Index = 0
	if err := j.call("apply"); err == nil || !strings.Contains(err.Error(), "list the VFs again") {
		t.Errorf("error = %v", err)
	}
}

func TestACanceledApplyIsLeftToRestore(t *testing.T) {
	j := newTrial(t, card(sriovtest.Card{Driver: "igb"}))
	canceled, cancel := context.WithCancel(ctx)
	j.node.Before = func(step string) {
		if step == "apply vlan" {
			cancel()
		}
	}
	if err := j.node.Apply(canceled, j.vf, j.want); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	j.checkClean(t)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/bench/stats"
	"github.com/slurm-v/slurm-v/guest"
)

// launchResult compares one VM started by Slurm-V with the same VM started by QEMU alone,
// in turns. All times are in seconds.
type launchResult struct {
	SlurmV []float64 `json:"slurm_v"`
	Bare   []float64 `json:"bare"`

	Stages []map[string]float64 `json:"stages"` // of Slurm-V's VM, by round
}

// overhead returns the seconds that Slurm-V adds.
func (l launchResult) overhead() float64 { return stats.Median(l.SlurmV) - stats.Median(l.Bare) }

func measureLaunch(ctx context.Context, b *bench, r *results) error {
	c, err := up(ctx, shape{nodes: 1, cpus: 8})
	if err != nil {
		return err
	}
	same, err := c.captureOne(ctx)
	if err != nil {
		return err
	}
	var result launchResult
	for i := range b.rounds(7) {
		l, err := c.launch(ctx, cold(1, 1))
		if err != nil {
			return err
		}
		alone, err := c.runBare(ctx, same)
		if err != nil {
			return err
		}
		b.say("round %d: Slurm-V %.2f s, QEMU alone %.2f s", i+1, l.Seconds, alone)
		result.SlurmV, result.Bare = append(result.SlurmV, l.Seconds), append(result.Bare, alone)
		result.Stages = append(result.Stages, l.stages())
	}
	r.Launch = &result
	return nil
}

// A bare is a VM that QEMU runs alone.
type bare struct {
	Args    []string    `json:"args"` // the command line; $DIR is a directory for its files
	Image   string      `json:"image"`
	Seed    string      `json:"seed"` // disk
	Overlay string      `json:"overlay"`
	Setup   guest.Setup `json:"setup"`
}

// captureOne launches a VM, and makes a bare one like it.
func (c *cluster) captureOne(ctx context.Context) (same bare, err error) {
	one := cold(1, 1)
	one.during = func() (err error) { same, err = c.capture(); return err }
	_, err = c.launch(ctx, one)
	return same, err
}

// capture reads the command line of the only QEMU that runs in the cluster, and makes a
// bare VM like it.
func (c *cluster) capture() (bare, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return bare{}, err
	}
	for _, line := range lines {
		text, _ := os.ReadFile(line)
		if strings.Contains(string(text), "\x00-uuid\x00") && strings.Contains(string(text), c.dir+"/state/n1/") {
			return c.model(strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"))
		}
	}
	return bare{}, errors.New("no QEMU of the cluster runs")
}

var (
	overlayPath = regexp.MustCompile(`"filename":"([^"]*/overlay\.qcow2)"`)
	seedPath    = regexp.MustCompile(`"filename":"([^"]*/seed\.iso)"`)
	imagePath   = regexp.MustCompile(`"filename":"([^"]*\.qcow2)"`)
	macField    = regexp.MustCompile(`"mac":"([^"]*)"`)
)

// model makes libvirt's command line work without libvirt: QEMU makes its sockets and its
// tap itself, and starts the guest at once.
func (c *cluster) model(args []string) (bare, error) {
	all := strings.Join(args, "\n")
	found := func(p *regexp.Regexp) string {
		if m := p.FindStringSubmatch(all); m != nil {
			return m[1]
		}
		return ""
	}
	m := bare{Image: found(imagePath), Overlay: found(overlayPath), Seed: filepath.Join(c.dir, "home", "seed.iso")}
	mac := found(macField)
	if m.Image == "" || m.Overlay == "" || mac == "" {
		return m, fmt.Errorf("QEMU's command line is not understood:\n%s", all)
	}
	seed, err := os.ReadFile(found(seedPath))
	if err == nil {
		err = os.WriteFile(m.Seed, seed, 0o644)
	}
	m.Args = alone(args, strings.NewReplacer(m.Overlay, "$DIR/overlay.qcow2", found(seedPath), m.Seed))
	home := filepath.Join(c.dir, "home", "alice")
	m.Setup = guest.Setup{
		HostName: "vm0", GrowRoot: true,
		User:   guest.User{Name: "alice", UID: 6001, GID: 6001, Groups: []guest.Group{{Name: "alice", GID: 6001}}, Home: home, Shell: "/bin/bash"},
		NICs:   []guest.NIC{{MAC: mac, MTU: 1500, Address: "172.30.0.1/16"}},
		Mounts: []guest.Mount{{Tag: "slurmv0", Path: filepath.Join(home, "bench")}},
	}
	return m, err
}

// own replaces the descriptors that libvirt passes to QEMU by sockets and a tap that QEMU
// opens itself.
var own = []struct {
	handed *regexp.Regexp
	made   string
}{
	{regexp.MustCompile(`^socket,id=charserial0,fd=\d+,`), "socket,id=charserial0,path=$$DIR/console,"},
	{regexp.MustCompile(`^socket,id=charchannel0,fd=\d+,`), "socket,id=charchannel0,path=$$DIR/channel,"},
	{regexp.MustCompile(`"type":"tap","fd":"\d+"`), `"type":"tap","ifname":"bench0","script":"no","downscript":"no"`},
}

// alone returns the arguments that do not tie QEMU to libvirt: without the monitor, the
// secret and the order to wait (-S).
func alone(args []string, paths *strings.Replacer) (kept []string) {
	for i := 0; i < len(args); i++ {
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case args[i] == "-S":
		case strings.Contains(next, "charmonitor") || strings.Contains(next, "masterKey0"):
			i++
		default:
			text := paths.Replace(args[i])
			for _, o := range own {
				text = o.handed.ReplaceAllString(text, o.made)
			}
			kept = append(kept, text)
		}
	}
	return kept
}

// runBare runs the bare VM on the node, in the node's own cgroup, and returns its boot
// time.
func (c *cluster) runBare(ctx context.Context, m bare) (float64, error) {
	self, file, err := c.installBare(m)
	if err != nil {
		return 0, err
	}
	out, err := script(ctx, "run", "--user", "root", "--node", "n1", "--", self, "bare", file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(out, 64)
}

// installBare puts this program and the description of a bare VM where the nodes see them.
func (c *cluster) installBare(m bare) (self, file string, err error) {
	home := filepath.Join(c.dir, "home") // nodes have a /tmp of their own
	self, file = filepath.Join(home, "bench"), filepath.Join(home, "bare.json")
	text, err := json.Marshal(m)
	if err != nil {
		return "", "", err
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", "", err
	}
	return self, file, errors.Join(os.WriteFile(self, program, 0o755), os.WriteFile(file, text, 0o644))
}

// readyTime bounds the boot of a bare VM.
const readyTime = 5 * time.Minute

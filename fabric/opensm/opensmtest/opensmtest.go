// Package opensmtest runs a real OpenSM on a simulated InfiniBand fabric, for tests.
//
// The fabric is ibsim's: a switch, the subnet manager's host and a host for each port GUID that
// the test chooses. OpenSM and InfiniBand's diagnostics work on it if they have the
// environment of [Fabric.Env]. Nothing needs root, and several fabrics can run at once.
package opensmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
)

// SM is the GUID of the port of the subnet manager's host.
const SM fabric.GUID = 0x11

// A Fabric is a running simulation.
type Fabric struct {
	Dir        string // of all its files
	Partitions string // OpenSM's partitions.conf, which the test writes
	PIDFile    string // of the OpenSM that runs, or has run last

	library string
	name    string // of ibsim's sockets
	console io.Writer
	opensm  *exec.Cmd
}

// New starts a fabric whose ports have these GUIDs. It skips the test without the packages.
func New(t testing.TB, guids ...fabric.GUID) *Fabric {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib*/*/umad2sim/libumad2sim.so")
	for _, program := range []string{"ibsim", "opensm", "smpquery"} {
		if _, err := exec.LookPath(program); err != nil || found == nil {
			t.Skip("there is no simulated fabric: install the packages opensm, ibsim-utils and infiniband-diags")
		}
	}
	dir := t.TempDir()
	f := &Fabric{
		Dir: dir, Partitions: filepath.Join(dir, "partitions.conf"), PIDFile: filepath.Join(dir, "opensm.pid"),
		library: found[0], name: fmt.Sprintf("slurmv-%d-%d", os.Getpid(), time.Now().UnixNano()),
	}
	f.simulate(t, network(append([]fabric.GUID{SM}, guids...)))
	return f
}

// network returns the fabric in ibsim's format. ibsim gives port 1 of a host the GUID after
// the host's.
func network(guids []fabric.GUID) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Switch\t%d \"switch\"\n", len(guids))
	for i, g := range guids {
		fmt.Fprintf(&b, "[%d]\t\"%s\"[1]\n", i+1, host(g))
	}
	for i, g := range guids {
		fmt.Fprintf(&b, "\ncaguid=%s\nHca\t1 \"%s\"\n[1]\t\"switch\"[%d]\n", (g - 1).Hex(), host(g), i+1)
	}
	return b.String()
}

// host is the name of a port's host.
func host(g fabric.GUID) string { return g.Hex()[2:] }

func (f *Fabric) simulate(t testing.TB, network string) {
	t.Helper()
	file := filepath.Join(f.Dir, "net")
	if err := os.WriteFile(file, []byte(network), 0o644); err != nil {
		t.Fatal(err)
	}
	sim := exec.Command("ibsim", "-s", file)
	sim.Env = f.Env(SM)[:len(os.Environ())+1] // without the library
	console, err := sim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.console = console
	f.start(t, sim, "ibsim.out")
	f.await(t, "ibsim.out", "sim>")
}

// Env is the environment of programs on the host of a port.
func (f *Fabric) Env(port fabric.GUID) []string {
	return append(os.Environ(), "IBSIM_SOCKNAME="+f.name, "SIM_HOST="+host(port), "LD_PRELOAD="+f.library,
		"OSM_CACHE_DIR="+f.Dir, "OSM_TMP_DIR="+f.Dir)
}

// StartOpenSM returns when OpenSM has set up the fabric.
func (f *Fabric) StartOpenSM(t testing.TB) {
	t.Helper()
	_ = os.Remove(filepath.Join(f.Dir, "opensm.log"))
	path, err := exec.LookPath("opensm")
	if err != nil {
		t.Fatal(err)
	}
	f.opensm = exec.Command(path, "--log_file", filepath.Join(f.Dir, "opensm.log"), "--Pconfig", f.Partitions, "--config", os.DevNull,
		"--debug", "2") // which writes the log at once
	f.opensm.Env = f.Env(SM)
	f.start(t, f.opensm, "opensm.out")
	if err := os.WriteFile(f.PIDFile, fmt.Appendln(nil, f.opensm.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	f.await(t, "opensm.log", "SUBNET UP")
}

// Patiently asks the fabric until it answers, for a minute at most. On a busy machine the simulated one can take longer than
// smpquery waits.
func Patiently[T any](t testing.TB, ask func(context.Context) (T, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var before error // which tells more than the end of the minute
	for {
		answer, err := ask(ctx)
		if err == nil {
			return answer
		}
		if ctx.Err() != nil {
			t.Fatal(errors.Join(before, err))
		}
		before = err
	}
}

// KillOpenSM ends OpenSM as a crash would.
func (f *Fabric) KillOpenSM(t testing.TB) {
	t.Helper()
	if err := f.opensm.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = f.opensm.Wait()
}

// Unlink pulls the cable of a port, and Link plugs it in again.
func (f *Fabric) Unlink(t testing.TB, port fabric.GUID) { f.say(t, "Unlink", port) }

// Link undoes [Fabric.Unlink].
func (f *Fabric) Link(t testing.TB, port fabric.GUID) { f.say(t, "ReLink", port) }

func (f *Fabric) say(t testing.TB, what string, port fabric.GUID) {
	t.Helper()
	if _, err := fmt.Fprintf(f.console, "%s \"%s\"[1]\n", what, host(port)); err != nil {
		t.Fatal(err)
	}
}

// Log returns what OpenSM has said.
func (f *Fabric) Log() string {
	text, _ := os.ReadFile(filepath.Join(f.Dir, "opensm.log"))
	return string(text)
}

// start runs a program until the end of the test.
func (f *Fabric) start(t testing.TB, c *exec.Cmd, output string) {
	t.Helper()
	out, err := os.Create(filepath.Join(f.Dir, output))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c.Stdout, c.Stderr, c.Dir = out, out, f.Dir
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

func (f *Fabric) await(t testing.TB, file, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if said, _ := os.ReadFile(filepath.Join(f.Dir, file)); bytes.Contains(said, []byte(text)) {
			return
		}
	}
	said, _ := os.ReadFile(filepath.Join(f.Dir, file))
	t.Fatalf("%s does not say %s in 30 s, but\n%s", file, strconv.Quote(text), said)
}

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/opensm"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/program"
)

// An Order changes the members of a P_Key in OpenSM's file. `slurmv fabric partitions` reads
// it, as JSON, on the host that runs OpenSM.
type Order struct {
	PKey  fabric.Tag    `json:"pkey"`            // without the bit of full members
	Join  []fabric.GUID `json:"join,omitempty"`  // the only members from then on
	Leave []fabric.GUID `json:"leave,omitempty"` // and the P_Key must be gone from these ports
}

// maxOrder bounds the text of an Order: a job has at most 2^20 ports.
const maxOrder = 64 << 20

// ReadOrder reads an Order. It refuses what no job of the site can have: SlurmUser gives
// orders to root.
func ReadOrder(site config.Fabric, from io.Reader) (o Order, err error) {
	text, err := io.ReadAll(io.LimitReader(from, maxOrder))
	if err != nil {
		return o, fmt.Errorf("read an order about P_Keys: %w", err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("read an order about P_Keys: %w; the controller writes it to the standard input, see opensm_command in slurmv.toml", err)
	}
	return o, o.check(site)
}

func (o Order) check(site config.Fabric) error {
	ours := slices.ContainsFunc(fabric.Pools(site), func(p fabric.Pool) bool { return p.Kind == fabric.PKey && p.Has(o.PKey) })
	if !ours {
		return fmt.Errorf("P_Key %s is in no pool of this host's slurmv.toml: give the controllers and OpenSM's host the same one", o.PKey.Text(fabric.PKey))
	}
	for _, g := range slices.Concat(o.Join, o.Leave) {
		if !g.OfVF() {
			return fmt.Errorf("port %s is not of a job's VF", g.Hex())
		}
	}
	return nil
}

// Apply changes OpenSM's file on this host, and returns when the ports that leave have left.
// The ports that join need not be on the fabric yet, but an OpenSM must have been told of them:
// else their job would run without the P_Key. For ports that leave, note says that no OpenSM
// runs. It gives up as its controller does: the end of an ssh does not end what it has started.
func (o Order) Apply(ctx context.Context, site config.PKeyPool) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, managerTime(len(o.Join)+len(o.Leave)))
	defer cancel()
	if site.PartitionsFile == "" {
		return "", errors.New("partitions_file in [fabric.pkey] of this host's slurmv.toml is empty: name OpenSM's partitions.conf")
	}
	note, err = opensm.Apply(ctx, site.PartitionsFile, site.OpenSMPIDFile, o.change)
	if note != "" && len(o.Join) > 0 {
		return "", fmt.Errorf("%s; start OpenSM, or name its process in opensm_pid_file of slurmv.toml: until then no job gets a P_Key", note)
	}
	if err != nil || len(o.Leave) == 0 {
		return note, err
	}
	return note, opensm.Ports{}.ConfirmGone(ctx, o.PKey, o.Leave)
}

// change changes the partitions of jobs. Ports that join are the only members then: others are
// of a job whose release was forced, or that the ledger has lost. A partition without members
// is none.
func (o Order) change(p opensm.Partitions) error {
	if len(o.Join) > 0 {
		p[o.PKey] = slices.Clone(o.Join)
		return nil
	}
	members := slices.DeleteFunc(slices.Clone(p[o.PKey]), func(g fabric.GUID) bool { return slices.Contains(o.Leave, g) })
	if len(members) == 0 {
		delete(p, o.PKey)
		return nil
	}
	p[o.PKey] = members
	return nil
}

// openSM is OpenSM on this host, or behind a command.
type openSM struct {
	site config.PKeyPool
	warn func(format string, args ...any)
}

func (m openSM) Join(ctx context.Context, pkey fabric.Tag, ports []fabric.GUID) error {
	return m.do(ctx, Order{PKey: pkey, Join: ports})
}

func (m openSM) Leave(ctx context.Context, pkey fabric.Tag, ports []fabric.GUID) error {
	return m.do(ctx, Order{PKey: pkey, Leave: ports})
}

func (m openSM) do(ctx context.Context, o Order) error {
	if len(m.site.OpenSMCommand) > 0 {
		return m.send(ctx, o)
	}
	note, err := o.Apply(ctx, m.site)
	if note != "" {
		m.warn("%s", note)
	}
	return err
}

// commandDelay is how long after the command's end its output is read: ssh may leave a process
// behind that keeps it open (ControlPersist).
const commandDelay = 2 * time.Second

// send gives the order to the site's command.
func (m openSM) send(ctx context.Context, o Order) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	words := m.site.OpenSMCommand
	path := words[0]
	if !strings.Contains(path, "/") {
		if path, err = program.Find("", path); err != nil {
			return fmt.Errorf("opensm_command: %w", err)
		}
	}
	command := exec.CommandContext(ctx, path, words[1:]...)
	command.Env = []string{"PATH=" + program.Path, "HOME=" + os.Getenv("HOME")}
	command.Stdin, command.WaitDelay = bytes.NewReader(text), commandDelay
	var said owner.Tail
	command.Stdout, command.Stderr = &said, &said
	err = command.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w, and %w", context.Cause(ctx), err)
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, said.Line())
}

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
)

// A said is the content of the file "statement".
type said struct {
	Statement letter.Statement `json:"statement"`
	Told      bool             `json:"told"` // slurmctld has it
}

// change changes what the node has confirmed. slurmctld hears of it by [Node.Tell].
func (n *Node) change(ctx context.Context, edit func(letter.Statement) letter.Statement) error {
	return n.locked(ctx, func(now said) (said, error) { return said{Statement: edit(now.Statement)}, nil })
}

// locked changes the file "statement". All processes of the node change it one after the
// other: a confirmation that is overwritten is lost.
func (n *Node) locked(ctx context.Context, edit func(said) (said, error)) error {
	if err := durable.MakeDirs(n.state, 0o711); err != nil {
		return err
	}
	lock, err := durable.Lock(ctx, filepath.Join(n.state, "statement.lock"), os.O_CREATE)
	if err != nil {
		return err
	}
	defer lock.Close()
	now, err := n.read()
	if err != nil {
		return err
	}
	next, err := edit(now)
	if err != nil {
		return err
	}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	return durable.WriteFile(n.statementFile(), text)
}

func (n *Node) statementFile() string { return filepath.Join(n.state, "statement") }

// read returns what the node has said in this boot. What it has said before does not
// count any more: its new boot says that everything is gone.
func (n *Node) read() (now said, err error) {
	boot, err := journal.BootID()
	if err != nil {
		return said{}, err
	}
	fresh := said{Statement: letter.Statement{Node: n.name, Boot: boot}, Told: true}
	text, err := os.ReadFile(n.statementFile())
	if gone(err) {
		return fresh, nil
	}
	if err != nil {
		return said{}, err
	}
	if err := json.Unmarshal(text, &now); err != nil {
		return said{}, fmt.Errorf("%s: %w; remove it, and release jobs that wait for this node with slurmv fabric release --force", n.statementFile(), err)
	}
	if now.Statement.Boot != boot || now.Statement.Node != n.name {
		return fresh, nil
	}
	return now, nil
}

// note adds the run to what the node has confirmed.
func (n *Node) note(ctx context.Context, id journal.ID) error {
	return n.change(ctx, func(s letter.Statement) letter.Statement { return s.With(id) })
}

// retract takes back that the run has nothing here: it begins again.
func (n *Node) retract(ctx context.Context, id journal.ID) error {
	now, err := n.read()
	if err != nil || !slices.Contains(now.Statement.Released, id) {
		return err
	}
	if err := n.change(ctx, func(s letter.Statement) letter.Statement { return s.Without(id) }); err != nil {
		return err
	}
	return n.Tell(ctx)
}

// tellTries is how often Tell asks slurmctld, which may be just changing places with its
// backup.
const tellTries = 3

// Tell writes the node's statement into its record at slurmctld, unless slurmctld has it.
// If that fails, the next Tell does it, at the latest that of Clean.
func (n *Node) Tell(ctx context.Context) error {
	now, err := n.read()
	if err != nil || now.Told {
		return err
	}
	return n.locked(ctx, func(now said) (said, error) {
		err := n.tellAgain(ctx, now.Statement)
		return said{now.Statement, err == nil}, err
	})
}

func (n *Node) tellAgain(ctx context.Context, s letter.Statement) (err error) {
	for try := range tellTries {
		if err = n.tell(ctx, s); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(time.Duration(try+1) * time.Second):
		}
	}
	return fmt.Errorf("confirm to slurmctld what node %s has released: %w", n.name, err)
}

func (n *Node) tell(ctx context.Context, s letter.Statement) error {
	with, err := n.seal(ctx)
	if err != nil {
		return err
	}
	text, err := letter.Seal(with.key, letter.NodeSubject(with.cluster, n.name), s)
	if err != nil {
		return err
	}
	comment, err := n.slurm.NodeComment(ctx, n.name)
	if err != nil {
		return err
	}
	return n.slurm.SetNodeComment(ctx, n.name, letter.PutBlock(comment, text))
}

func (n *Node) pendingDir() string { return filepath.Join(n.state, "pending") }

func (n *Node) pendingFile(job uint32) string {
	return filepath.Join(n.pendingDir(), strconv.FormatUint(uint64(job), 10))
}

func (n *Node) setPending(job uint32) error {
	if err := durable.MakeDirs(n.pendingDir(), 0o711); err != nil {
		return err
	}
	return durable.WriteFile(n.pendingFile(job), nil)
}

func (n *Node) clearPending(job uint32) error { return removeIfThere(n.pendingFile(job)) }

// pending returns the jobs that have ended of which it is not known which run.
func (n *Node) pending() (jobs []uint32, err error) {
	entries, err := os.ReadDir(n.pendingDir())
	if gone(err) {
		return nil, nil
	}
	for _, e := range entries {
		if job, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			jobs = append(jobs, uint32(job))
		}
	}
	return jobs, err
}

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// words are what the node says to the controller: its statement, on disk and in its record at
// slurmctld.
type words struct {
	dir   string
	node  string // name in Slurm
	key   string // file of the cluster's key
	tags  bool   // the site has pools of tags
	slurm slurm.Comments
}

// A said is the content of the file "statement".
type said struct {
	Statement letter.Statement `json:"statement"`        // what is held is as of when it was told
	Told      bool             `json:"told"`             // slurmctld has taken it
	Letter    string           `json:"letter,omitempty"` // with which it was told
}

// change changes what the node has confirmed. slurmctld hears of it by [words.tellIfNew].
func (w words) change(ctx context.Context, edit func(letter.Statement) letter.Statement) error {
	return w.locked(ctx, func(now said) (said, error) { return said{Statement: edit(now.Statement)}, nil })
}

// locked changes the file "statement". All processes of the node change it one after the
// other: a confirmation that is overwritten is lost.
func (w words) locked(ctx context.Context, edit func(said) (said, error)) error {
	if err := durable.MakeDirs(w.dir, 0o711); err != nil {
		return err
	}
	lock, err := durable.Lock(ctx, filepath.Join(w.dir, "statement.lock"), os.O_CREATE)
	if err != nil {
		return err
	}
	defer lock.Close()
	now, err := w.read()
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
	return durable.WriteFile(w.file(), text)
}

func (w words) file() string { return filepath.Join(w.dir, "statement") }

// read returns what the node has said in this boot. What it has said before does not
// count any more: its new boot says that everything is gone, and is to be told.
func (w words) read() (now said, err error) {
	boot, err := journal.BootID()
	if err != nil {
		return said{}, err
	}
	fresh := said{Statement: letter.Statement{Node: w.node, Boot: boot}, Told: !w.tags}
	text, err := os.ReadFile(w.file())
	if gone(err) {
		return fresh, nil
	}
	if err != nil {
		return said{}, err
	}
	if err := json.Unmarshal(text, &now); err != nil {
		return said{}, fmt.Errorf("%s: %w; remove it, and release jobs that wait for this node with slurmv fabric release --force", w.file(), err)
	}
	if now.Statement.Boot != boot || now.Statement.Node != w.node {
		return fresh, nil
	}
	return now, nil
}

// confirmed reports whether the node says of the run that it has nothing here.
func (w words) confirmed(id journal.ID) (bool, error) {
	now, err := w.read()
	return err == nil && slices.Contains(now.Statement.Released, id), err
}

// note adds the run to what the node has confirmed.
func (w words) note(ctx context.Context, id journal.ID) error {
	return w.change(ctx, func(s letter.Statement) letter.Statement { return s.With(id) })
}

// retract takes back that the run has nothing here: it begins again. slurmctld knows that when
// retract returns: at the run's end, the controller believes what it reads then.
func (w words) retract(ctx context.Context, id journal.ID) error {
	confirmed, err := w.confirmed(id)
	if confirmed {
		err = w.change(ctx, func(s letter.Statement) letter.Statement { return s.Without(id) })
	}
	if err != nil {
		return err
	}
	return w.tellIfNew(ctx)
}

// tellTries is how often it asks slurmctld, which may be just changing places with its
// backup.
const tellTries = 3

// tellIfNew writes the node's statement into its record at slurmctld, unless slurmctld has
// it. If that fails, the next call does it, at the latest that of [Node.Clean].
func (w words) tellIfNew(ctx context.Context) error {
	now, err := w.read()
	if err != nil || now.Told {
		return err
	}
	return w.tellNow(ctx)
}

// tellIfHeld tells what the node holds if slurmctld has another word about that. A start of a job
// alone is not told: slurmctld knows what it has in the record of a job that runs.
func (w words) tellIfHeld(ctx context.Context) error {
	now, err := w.read()
	if err != nil {
		return err
	}
	if reflect.DeepEqual(w.holding(now.Statement), now.Statement) {
		return nil
	}
	return w.tellNow(ctx)
}

// holding returns the statement with what the node holds at the moment. A run that is released
// is not held, though its journal may still be there.
func (w words) holding(s letter.Statement) letter.Statement {
	held, more := records{dir: w.dir, node: w.node}.held()
	held = slices.DeleteFunc(held, func(h letter.Holding) bool { return slices.Contains(s.Released, h.Job) })
	s = s.Holding(held)
	s.More = s.More || more
	return s
}

// tellIfLost is [words.tellIfNew], and tells again what is no longer in the node's record:
// administrators and the controller write the Comment, too, and may replace it. It returns the runs
// for which the controller asks there; if it finds none, the controller asks again.
func (w words) tellIfLost(ctx context.Context) (asked []journal.ID, err error) {
	now, err := w.read()
	switch {
	case err != nil:
		return nil, err
	case !now.Told || now.Letter == "":
		return nil, w.tellIfNew(ctx)
	}
	comment, err := w.slurm.NodeComment(ctx, w.node)
	if err != nil {
		return nil, fmt.Errorf("look whether slurmctld still knows what node %s has released: %w", w.node, err)
	}
	if text, _ := letter.Block(comment); text != now.Letter {
		err = w.tellNow(ctx)
	}
	return letter.Asked(comment), err
}

func (w words) tellNow(ctx context.Context) error {
	return w.locked(ctx, func(now said) (said, error) {
		s := w.holding(now.Statement)
		text, err := w.tellAgain(ctx, s)
		return said{s, err == nil, text}, err
	})
}

func (w words) tellAgain(ctx context.Context, s letter.Statement) (text string, err error) {
	for try := range tellTries {
		if text, err = w.tell(ctx, s); err == nil {
			return text, nil
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(err, context.Cause(ctx))
		case <-time.After(time.Duration(try+1) * time.Second):
		}
	}
	return "", fmt.Errorf("confirm to slurmctld what node %s has released: %w", w.node, err)
}

// tell returns the letter that it has written. What the controller has asked for is in it, or is asked
// for again.
func (w words) tell(ctx context.Context, s letter.Statement) (text string, err error) {
	with, err := w.seal(ctx)
	if err != nil {
		return "", err
	}
	if text, err = letter.Seal(with.key, letter.NodeSubject(with.cluster, w.node), s); err != nil {
		return "", err
	}
	comment, err := w.slurm.NodeComment(ctx, w.node)
	if err != nil {
		return "", err
	}
	return text, w.slurm.SetNodeComment(ctx, w.node, letter.PutBlock(letter.DropAsks(comment), text))
}

// seal is what letters of the cluster are sealed with.
type seal struct {
	key     letter.Key
	cluster string
}

func (w words) seal(ctx context.Context) (s seal, err error) {
	if s.key, err = letter.Load(w.key); err != nil {
		return seal{}, err
	}
	conf, err := w.slurm.Conf(ctx)
	if err != nil {
		return seal{}, err
	}
	if s.cluster = conf["ClusterName"]; s.cluster == "" {
		return seal{}, errors.New("scontrol show config says no ClusterName")
	}
	return s, nil
}

package ledger

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
)

// markSuffix is of the file beside the ledger that has the ledger's mark.
//
// Each change gives the ledger another mark, a random one. An old copy that is put back has an
// old one: what it says of slurmctld's instance does not count then, and it is compared with the
// jobs again. The file is written just before the change is on disk, so a process that is killed
// in between leaves a mark that no ledger has. That is one more comparison, never one less.
//
// Nothing syncs the file: after a power cut there is another instance of slurmctld.
const markSuffix = ".mark"

// current reports whether the ledger is as its last change has left it.
func (l *Ledger) current(f facts) (bool, error) {
	var mark string
	if found, err := f.read(meta, "mark", &mark); !found || err != nil {
		return false, err
	}
	text, err := os.ReadFile(l.path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return string(text) == mark, err
}

// doubt forgets the instance that an old copy was compared with: the change that follows gives
// the copy a mark that counts.
func (l *Ledger) doubt(m machine) error {
	if current, err := l.current(m.facts); current || err != nil {
		return err
	}
	return m.setInstance("")
}

// mark is the last part of each change.
func (l *Ledger) mark(m machine) error {
	mark := rand.Text()
	if err := m.write(meta, "mark", mark); err != nil {
		return err
	}
	return os.WriteFile(l.path+markSuffix, []byte(mark), 0o600)
}

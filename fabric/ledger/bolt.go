package ledger

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"
)

// bolt is a transaction of bbolt as a store.
type bolt struct{ tx *bbolt.Tx }

func (b bolt) get(from bucket, key string) []byte { return b.tx.Bucket([]byte(from)).Get([]byte(key)) }

func (b bolt) put(to bucket, key string, value []byte) error {
	return b.tx.Bucket([]byte(to)).Put([]byte(key), value)
}

func (b bolt) remove(from bucket, key string) error {
	return b.tx.Bucket([]byte(from)).Delete([]byte(key))
}

func (b bolt) scan(of bucket, from string, do func(key string, value []byte) bool) {
	c := b.tx.Bucket([]byte(of)).Cursor()
	for k, v := c.Seek([]byte(from)); k != nil && do(string(k), v); k, v = c.Next() {
	}
}

// format is what the ledger's file says of itself.
const format = "slurm-v fabric ledger 1"

// lay makes the buckets of a new file.
func lay(tx *bbolt.Tx) error {
	for _, b := range buckets {
		if _, err := tx.CreateBucket([]byte(b)); err != nil {
			return err
		}
	}
	return machineOf(bolt{tx}).write(meta, "format", format)
}

// recognize returns an error if the file is not a ledger of this format.
func recognize(tx *bbolt.Tx) error {
	for _, b := range buckets {
		if tx.Bucket([]byte(b)) == nil {
			return damaged(fmt.Errorf("it is not a ledger of Slurm-V: it has no bucket %q", b))
		}
	}
	var got string
	if _, err := machineOf(bolt{tx}).read(meta, "format", &got); err != nil {
		return err
	}
	if got != format {
		return damaged(fmt.Errorf("its format is %q, this program knows %q", got, format))
	}
	return nil
}

// guard makes what bbolt does with a damaged file an error. It panics over pages that do not
// fit together. Reading a page behind the end of a file that was cut is a fault of memory.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &damage{fmt.Errorf("it is damaged: %v", r), true}
		}
	}()
	return do()
}

func (l *Ledger) update(operation string, do func(machine) error) error {
	return l.run(operation, func() error {
		var decision error
		var change mark
		err := l.db.Update(func(tx *bbolt.Tx) error {
			s := tracked{bolt{tx}, map[tag]bool{}}
			m := machineOf(s)
			number, err := l.doubt(m)
			if err != nil {
				return err
			}
			err = do(m)
			if commits(err) {
				decision, err = err, nil
			}
			if err != nil {
				return err
			}
			change, err = l.begin(m, number, s.changed)
			return err
		})
		if err == nil {
			l.commit(change)
		}
		return errors.Join(err, decision)
	})
}

// commits reports whether an error is a decision that changed the store.
func commits(err error) bool {
	var conflict *ConflictError
	return errors.Is(err, ErrExhausted) || errors.As(err, &conflict)
}

func (l *Ledger) view(operation string, do func(machine) error) error {
	return l.run(operation, func() error {
		return l.db.View(func(tx *bbolt.Tx) error { return do(machineOf(bolt{tx})) })
	})
}

func (l *Ledger) run(operation string, do func() error) error {
	if l.broken {
		return fmt.Errorf("%s: %w", operation, &damagedError{l.path, errors.New("it is damaged")})
	}
	if err := l.judge(guard(do)); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// judge makes a damage one of the file.
func (l *Ledger) judge(err error) error {
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	l.broken = l.broken || d.panicked
	return &damagedError{Path: l.path, Err: d.error}
}

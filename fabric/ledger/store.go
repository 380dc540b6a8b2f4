package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A bucket is a part of the store with its own keys.
type bucket string

// The buckets. All keys are text that sorts as what it stands for; all values are lines of
// [durable.Line] with JSON.
const (
	meta    bucket = "meta"    // "format", "instance", "last POOL", "change", "mark"
	jobs    bucket = "jobs"    // "JOB.RESTART" with leading zeros: record
	tags    bucket = "tags"    // "KIND TAG": holding; a free tag has none
	cooling bucket = "cooling" // "TIME KIND TAG": true; the tags that nobody has
)

var buckets = []bucket{meta, jobs, tags, cooling}

// A store is what the machine keeps its state in. A bbolt transaction is one, a map another.
type store interface {
	// get returns a value, nil if there is none. It is valid until the store changes.
	get(b bucket, key string) []byte
	put(b bucket, key string, value []byte) error
	remove(b bucket, key string) error
	// scan calls do with the values from a key on, by key, until do returns false. do
	// changes nothing.
	scan(b bucket, from string, do func(key string, value []byte) (more bool))
}

// facts are what is in a store, read and written as what they stand for.
type facts struct{ store }

// A machine decides over what is in a store. It changes the store only once it has decided,
// so an error of the package (such as [ErrEnded]) leaves a whole store; after any other
// error, the changes have to be undone.
type machine struct{ facts }

func machineOf(s store) machine { return machine{facts{s}} }

// read reads the value of a key into v, and reports whether there is one.
func (f facts) read(b bucket, key string, v any) (bool, error) {
	value := f.get(b, key)
	if value == nil {
		return false, nil
	}
	return true, decode(b, key, value, v)
}

// decode reads a value into v, which may have a check of its own.
func decode(b bucket, key string, value []byte, v any) error {
	text, err := durable.ParseLine(value)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if c, ok := v.(interface{ check(key string) error }); ok && err == nil {
		err = c.check(key)
	}
	if err != nil {
		return damaged(fmt.Errorf("%s %q is damaged: %w", b, key, err))
	}
	return nil
}

// A damage is an error of what is in the file.
type damage struct {
	error
	panicked bool // bbolt was interrupted
}

func damaged(err error) error { return &damage{error: err} }

func (d *damage) Unwrap() error { return d.error }

func (f facts) write(b bucket, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.put(b, key, durable.Line(text))
}

func (f facts) instance() (instance string, err error) {
	_, err = f.read(meta, "instance", &instance)
	return instance, err
}

func (f facts) setInstance(instance string) error { return f.write(meta, "instance", instance) }

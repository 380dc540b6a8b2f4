package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A journal consists of lines of [durable.Line], each with one entry as JSON: `cut -c10-
// journal | jq` shows them.
const (
	version = 1

	// maxLine bounds an entry, in bytes. The largest entry that this program writes is a
	// record with Data. Older programs wrote the job's spec, of up to 96 KiB, into the
	// header.
	maxLine = 1 << 20
)

// A Header says which job's journal it is. It is written once. Unknown fields, which
// older programs wrote, are ignored.
type Header struct {
	Version int       `json:"version"` // of the file's format
	Job     uint32    `json:"job"`
	Restart uint32    `json:"restart"`
	Step    uint32    `json:"step"` // the VM step; only the end of this step, or of the job, reclaims
	UID     uint32    `json:"uid"`
	GID     uint32    `json:"gid"`
	Node    string    `json:"node"`               // name in Slurm
	WorkDir string    `json:"work_dir,omitempty"` // of the job, where its logs are saved
	BootID  string    `json:"boot_id"`            // the kernel's, see [BootID]
	Created time.Time `json:"created"`
}

// ID returns the job and restart of the header.
func (h Header) ID() ID { return ID{Job: h.Job, Restart: h.Restart} }

// A Record is one resource that the job holds or, before Done, may hold.
type Record struct {
	Kind string
	Name string
	Data json.RawMessage // the data of the resource's Intend; nil if it had none
	Done bool
}

// Decode reads Data into v.
func (r Record) Decode(v any) error {
	if err := json.Unmarshal(r.Data, v); err != nil {
		return fmt.Errorf("journal record %s %s: %w", r.Kind, r.Name, err)
	}
	return nil
}

type op string

const (
	opHolder op = "holder"
	opHeader op = "header"
	opIntend op = "intend"
	opDone   op = "done"
	opUndone op = "undone"
)

// An entry is one line of the file.
type entry struct {
	Op     op              `json:"op"`
	Header *Header         `json:"header,omitempty"`
	Holder *Holder         `json:"holder,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	Name   string          `json:"name,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Synced *int64          `json:"synced,omitempty"` // bytes of the file that were on disk before; older programs did not say
}

// contents is the sum of all lines of a journal.
type contents struct {
	header Header // Version 0: not written yet
	holder Holder
	held   []Record
	size   int64 // valid bytes at the beginning of the file
}

// A corruptError says which line of a journal is damaged. What the job holds is then
// unknown and must be cleaned up by hand.
type corruptError struct {
	File string
	Line int // from 1
	Err  error
}

func (e *corruptError) Error() string {
	return fmt.Sprintf("%s:%d: %v; give back by hand what its other lines name, then delete it", e.File, e.Line, e.Err)
}

func (e *corruptError) Unwrap() error { return e.Err }

func named(err error, file string) error {
	var corrupt *corruptError
	if errors.As(err, &corrupt) {
		corrupt.File = file
	}
	return err
}

// parse reads a journal. What a line announces is done only when the line is on disk, with all lines before it. A power cut
// can damage the lines that were not: several if several goroutines wrote at once, and not always the last of them. So a
// damaged line, and all lines after it, count as not written if it is the last one, or the later ones say that it was not on
// disk. Otherwise it is a [*CorruptError]; parse then also returns what it has read so far.
func parse(data []byte) (contents, error) {
	var c contents
	for number := 1; len(data) > 0; number++ {
		e, rest, err := cut(data)
		if err != nil && unwritten(c.size, rest) {
			return c, nil
		}
		if err == nil {
			var next contents
			if next, err = c.apply(e); err == nil {
				next.size = c.size + int64(len(data)-len(rest))
				c, data = next, rest
				continue
			}
		}
		return c, &corruptError{Line: number, Err: err}
	}
	return c, nil
}

// unwritten reports whether a damaged line at an offset was not on disk yet, by the lines that follow it.
func unwritten(offset int64, following []byte) bool {
	said := len(following) == 0
	for len(following) > 0 {
		e, rest, err := cut(following)
		switch {
		case err == nil && (e.Synced == nil || *e.Synced > offset):
			return false
		case err == nil:
			said = true
		}
		following = rest
	}
	return said
}

// apply returns c changed by e. It does not modify c itself.
func (c contents) apply(e entry) (contents, error) {
	at := slices.IndexFunc(c.held, func(r Record) bool { return r.Kind == e.Kind && r.Name == e.Name })
	switch {
	case e.Op == opHolder && e.Holder != nil:
		c.holder = *e.Holder
	case e.Op == opHeader && e.Header != nil && c.header.Version == 0:
		if e.Header.Version != version {
			return c, fmt.Errorf("format %d is not %d, the one this program knows", e.Header.Version, version)
		}
		c.header = *e.Header
	case c.header.Version == 0 || e.Header != nil || e.Holder != nil || e.Kind == "":
		return c, fmt.Errorf("%q does not belong here", e.Op)
	case e.Op == opIntend && at < 0:
		c.held = append(slices.Clip(c.held), Record{Kind: e.Kind, Name: e.Name, Data: e.Data})
	case e.Op == opDone && at >= 0:
		c.held = slices.Clone(c.held)
		c.held[at].Done = true
	case e.Op == opUndone && at >= 0:
		c.held = slices.Delete(slices.Clone(c.held), at, at+1)
	case e.Op == opIntend:
		return c, errors.New("it is held already")
	case e.Op == opDone || e.Op == opUndone:
		return c, errors.New("it is not held")
	default:
		return c, fmt.Errorf("unknown entry %q", e.Op)
	}
	return c, nil
}

func encode(e entry) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	line := durable.Line(text)
	if len(line) > maxLine {
		return nil, fmt.Errorf("entry of %d bytes is longer than %d", len(line), maxLine)
	}
	return line, nil
}

// cut reads the first line, and returns what follows it.
func cut(lines []byte) (e entry, rest []byte, err error) {
	_, rest, _ = bytes.Cut(lines, []byte("\n"))
	e, err = decode(lines[:len(lines)-len(rest)])
	return e, rest, err
}

// decode reads one line with its newline.
func decode(line []byte) (entry, error) {
	var e entry
	if len(line) > maxLine {
		return e, fmt.Errorf("line is longer than %d", maxLine)
	}
	text, err := durable.ParseLine(line)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(text, &e)
}

func marshalData(data any) (json.RawMessage, error) {
	if data == nil {
		return nil, nil
	}
	return json.Marshal(data)
}

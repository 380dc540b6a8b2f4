package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// The file of a VF has two slots, each a block of the disk. A slot begins with the line
//
//	CHECKSUM NUMBER RECORD
//
// which holds the CRC-32C of the rest of the slot, the number of the write, and a [Lease]
// as JSON or null. Empty lines fill the slot. `grep . FILE | cut -d' ' -f3-` shows both
// records. The slot with the higher number counts. A write never replaces the slot that
// was synced last, so that slot survives a power cut during the write.
const (
	slotSize = 4096
	fileSize = 2 * slotSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

// A slot is one write.
type slot struct {
	number uint64
	record []byte // JSON
	err    error  // why the slot cannot be read
}

func encodeSlot(number uint64, record []byte) ([]byte, error) {
	body := append(strconv.AppendUint(nil, number, 10), ' ')
	body = append(body, record...)
	text := fmt.Appendf(make([]byte, 0, slotSize), "%08x %s\n", checksum(body), body)
	if len(text) > slotSize {
		return nil, fmt.Errorf("record of %d bytes is longer than %d", len(text), slotSize)
	}
	return append(text, bytes.Repeat([]byte("\n"), slotSize-len(text))...), nil
}

func decodeSlot(text []byte) slot {
	line, _, whole := bytes.Cut(text, []byte("\n"))
	if !whole || len(line) < 9 || line[8] != ' ' {
		return slot{err: errors.New("it does not begin with a checksum")}
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil || uint32(sum) != checksum(line[9:]) {
		return slot{err: errors.New("its checksum is wrong")}
	}
	number, record, _ := bytes.Cut(line[9:], []byte(" "))
	s := slot{record: record}
	s.number, s.err = strconv.ParseUint(string(number), 10, 64)
	return s
}

// contents is what a file says.
type contents struct {
	number uint64 // of the last write
	last   int    // the slot of the last write
	record *Lease // nil if the last write freed the VF, or cannot be read
	bad    int    // how many slots cannot be read
	err    error  // why one of them cannot be read
}

// parse reads a file. If one slot is bad, it returns the record of the other one.
func parse(text []byte) contents {
	half := min(slotSize, len(text))
	slots := [2]slot{decodeSlot(text[:half]), decodeSlot(text[half:])}
	var c contents
	for i, s := range slots {
		if s.err != nil {
			c.bad, c.err = c.bad+1, fmt.Errorf("slot %d: %w", i, s.err)
		}
	}
	if slots[0].err != nil || slots[1].err == nil && slots[1].number > slots[0].number {
		c.last = 1
	}
	if last := slots[c.last]; last.err == nil {
		c.number = last.number
		if err := json.Unmarshal(last.record, &c.record); err != nil {
			c.record, c.bad, c.err = nil, 2, fmt.Errorf("slot %d: %w", c.last, err)
		}
	}
	return c
}

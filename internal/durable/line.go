package durable

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumSize is the length of a checksum and the space after it, in bytes.
const sumSize = 9

// Line returns "CHECKSUM TEXT\n". CHECKSUM is the CRC-32C of the text in eight
// hexadecimal digits; the text contains no newline. `cut -c10- FILE` shows the texts of a
// file of such lines.
func Line(text []byte) []byte { return fmt.Appendf(nil, "%s%s\n", sum(text), text) }

func sum(text []byte) string { return fmt.Sprintf("%08x ", crc32.Checksum(text, castagnoli)) }

// ParseLine returns the text of one line that [Line] has made, or an error if the line is
// damaged.
func ParseLine(line []byte) ([]byte, error) {
	body, whole := bytes.CutSuffix(line, []byte("\n"))
	switch {
	case !whole:
		return nil, errors.New("line has no end")
	case len(body) < sumSize || body[sumSize-1] != ' ' || bytes.Contains(body, []byte("\n")):
		return nil, errors.New("line is not a checksum and an entry")
	case string(body[:sumSize]) != sum(body[sumSize:]):
		return nil, errors.New("checksum is wrong")
	}
	return body[sumSize:], nil
}

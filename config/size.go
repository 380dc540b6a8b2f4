package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Size is an amount of memory or disk in MiB, Slurm's unit of memory.
type Size int64

// MaxSize bounds every Size (1 EiB), so that sums and products of sizes and
// numbers of VMs never overflow.
const MaxSize Size = 1 << 40

const sizeForm = "use a number and K, M, G or T, such as 8G"

// kib has the KiB that each suffix stands for; a number alone is in MiB.
var kib = map[byte]int64{'K': 1, 'M': 1 << 10, 'G': 1 << 20, 'T': 1 << 30}

// ParseSize reads a size as Slurm writes it: a whole number of MiB, or a number
// and one of K, M, G, T (powers of 1024, either case). The error is a phrase
// that begins with the text, such as "8Q is not a size; use a number and …".
func ParseSize(text string) (Size, error) {
	number, unit := text, kib['M']
	if last := len(text) - 1; last >= 0 {
		if suffix, ok := kib[strings.ToUpper(text[last:])[0]]; ok {
			number, unit = text[:last], suffix
		}
	}
	n, err := parseDigits(number)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > int64(MaxSize)*kib['M']/unit:
		return 0, fmt.Errorf("%s is too large a size; at most %s can be given", Quote(text), MaxSize)
	case err != nil:
		return 0, fmt.Errorf("%s is not a size; %s", Quote(text), sizeForm)
	case n*unit%kib['M'] != 0:
		return 0, fmt.Errorf("%s is not a whole number of MiB; %s", Quote(text), sizeForm)
	}
	return Size(n * unit / kib['M']), nil
}

// parseDigits is strconv.ParseInt, but refuses signs.
func parseDigits(text string) (int64, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}

// MiB returns the size as a number for Slurm and libvirt.
func (s Size) MiB() int64 { return int64(s) }

// PowerOfTwo reports whether the size is a power of two, as a PCI memory region must be.
func (s Size) PowerOfTwo() bool { return s > 0 && s&(s-1) == 0 }

// String returns the shortest text that ParseSize reads back, such as "8G".
func (s Size) String() string {
	for _, unit := range []struct {
		suffix string
		mib    Size
	}{{"T", 1 << 20}, {"G", 1 << 10}} {
		if s != 0 && s%unit.mib == 0 {
			return strconv.FormatInt(int64(s/unit.mib), 10) + unit.suffix
		}
	}
	if s == 0 {
		return "0"
	}
	return strconv.FormatInt(int64(s), 10) + "M"
}

// UnmarshalText lets a Size stand in the configuration file.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// Quote returns a value for messages. If it is empty, long or would disturb a terminal,
// it is quoted and shortened.
func Quote(value string) string {
	const longest = 80
	if len(value) > longest {
		return strconv.Quote(value[:longest]) + "…"
	}
	quoted := strconv.Quote(value)
	if value == "" || quoted != `"`+value+`"` {
		return quoted
	}
	return value
}

package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// TagKind is the kind of a tag on the fabric.
type TagKind string

// The values of TagKind.
const (
	TagVLAN TagKind = "vlan"
	TagPKey TagKind = "pkey" // InfiniBand partition
	TagVNI  TagKind = "vni"  // Slingshot virtual network identifier
)

// TagKinds lists all kinds.
var TagKinds = []TagKind{TagVLAN, TagPKey, TagVNI}

// Tags are the tags of a pool, in ascending order and apart from each other.
type Tags []TagRange

// A TagRange is the tags First to Last, both included.
type TagRange struct{ First, Last uint16 }

const tagsForm = `use ranges such as "1024-2047,4096-8191" or "0x1000-0x1fff"`

// maxTags bounds the text of a pool in bytes, and so its number of ranges.
const maxTags = 1024

// ParseTags reads ranges, or single tags, joined with commas, in any order. Numbers are
// decimal, or hexadecimal behind 0x. An empty text has no tags. The error is a phrase that
// begins with the wrong part.
func ParseTags(text string) (tags Tags, err error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxTags {
		return nil, fmt.Errorf("%s is %d bytes long; at most %d are allowed", Quote(text), len(text), maxTags)
	}
	for part := range strings.SplitSeq(text, ",") {
		r, err := parseTagRange(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		tags = append(tags, r)
	}
	return tags, tags.sort()
}

func parseTagRange(part string) (TagRange, error) {
	from, to, isRange := strings.Cut(part, "-")
	if !isRange {
		to = from
	}
	first, err := parseTag(from)
	last, lastErr := parseTag(to)
	switch err := errors.Join(err, lastErr); {
	case errors.Is(err, strconv.ErrRange):
		return TagRange{}, fmt.Errorf("%s goes beyond 65535, and tags have 16 bits", Quote(part))
	case err != nil:
		return TagRange{}, fmt.Errorf("%s is not a range of tags; %s", Quote(part), tagsForm)
	case last < first:
		return TagRange{}, fmt.Errorf("%s ends before it begins; write %s-%s", Quote(part), to, from)
	}
	return TagRange{first, last}, nil
}

func parseTag(text string) (uint16, error) {
	digits, hexadecimal := strings.CutPrefix(text, "0x")
	base, allowed := 10, "0123456789"
	if hexadecimal {
		base, allowed = 16, "0123456789abcdefABCDEF"
	}
	if digits == "" || strings.Trim(digits, allowed) != "" { // ParseUint takes underscores
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(digits, base, 16)
	return uint16(n), err
}

// sort brings the ranges into their order, and refuses a tag that is there twice.
func (t Tags) sort() error {
	slices.SortFunc(t, func(a, b TagRange) int { return cmp.Compare(a.First, b.First) })
	for i := 1; i < len(t); i++ {
		if t[i].First <= t[i-1].Last {
			return fmt.Errorf("%d is there twice; write each tag once", t[i].First)
		}
	}
	return nil
}

// UnmarshalText lets Tags stand in the configuration file.
func (t *Tags) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTags(string(text))
	return err
}

// String returns the text that ParseTags reads back.
func (t Tags) String() string {
	parts := make([]string, len(t))
	for i, r := range t {
		parts[i] = fmt.Sprintf("%d-%d", r.First, r.Last)
	}
	return strings.Join(parts, ",")
}

// overlap returns the lowest tag that is in both.
func (t Tags) overlap(other Tags) (tag uint16, found bool) {
	for _, a := range t {
		for _, b := range other {
			if first := max(a.First, b.First); first <= min(a.Last, b.Last) {
				return first, true
			}
		}
	}
	return 0, false
}

// bounds returns the lowest and the highest tag of a kind. P_Keys have 15 bits; 0x7fff is
// the partition of everybody.
func (k TagKind) bounds() TagRange {
	switch k {
	case TagVLAN:
		return TagRange{1, 4094}
	case TagPKey:
		return TagRange{0x0001, 0x7ffe}
	}
	return TagRange{1, 65535}
}

// reservedVNIs are the VNIs of the default service of Slingshot cards.
var reservedVNIs = []uint16{1, 10}

// check refuses tags that no job can have.
func (k TagKind) check(key string, tags Tags) error {
	within := k.bounds()
	for _, r := range tags {
		if r.First < within.First || r.Last > within.Last {
			return fmt.Errorf("%s: %s goes beyond the %ss that there are; stay within %s",
				key, k.rangeText(r), k.Word(), k.rangeText(within))
		}
		for _, vni := range reservedVNIs {
			if k == TagVNI && r.First <= vni && vni <= r.Last {
				return fmt.Errorf("%s: VNI %d belongs to the default service of the cards, which all users share; leave it out", key, vni)
			}
		}
	}
	return nil
}

func (k TagKind) text(tag uint16) string {
	if k == TagPKey {
		return fmt.Sprintf("%#04x", tag)
	}
	return strconv.Itoa(int(tag))
}

func (k TagKind) rangeText(r TagRange) string { return k.text(r.First) + "-" + k.text(r.Last) }

// Word returns the kind as sentences name it: VLAN, P_Key or VNI.
func (k TagKind) Word() string {
	switch k {
	case TagVLAN:
		return "VLAN"
	case TagPKey:
		return "P_Key"
	}
	return "VNI"
}

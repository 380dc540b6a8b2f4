package opensm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
)

// Partitions is the full members of each job's partition: the GUIDs of ports, by P_Key.
type Partitions map[fabric.Tag][]fabric.GUID

// The lines of the file that begin and end the block of jobs' partitions.
const (
	begin = "# slurm-v begin"
	end   = "# slurm-v end"
)

const notice = "# The partitions of jobs. slurmv writes them; changes here are lost."

// The names by which the block's own lines are known.
const (
	jobName     = "slurmv_"
	defaultName = "Default=0x7fff"
)

// membersPerLine keeps lines short: OpenSM cuts them after 4094 bytes.
const membersPerLine = 16

// render returns the lines of the block, the markers among them. The same partitions make
// the same lines.
func (p Partitions) render() string {
	lines := []string{begin, notice}
	for _, tag := range slices.Sorted(maps.Keys(p)) {
		lines = append(lines, statements(tag, p[tag])...)
	}
	return strings.Join(append(lines, end), "\n") + "\n"
}

// statements returns a partition's lines. OpenSM joins lines with the same P_Key, and counts
// the last line with a port.
//
// The P_Key is the first in the tables of VFs, since IPoIB in a VM uses the first. A port of
// a node keeps its own first P_Key: the node uses that. In the default partition VFs are only
// limited members, whatever the site's own line says: limited members hear the subnet
// manager, but not each other.
func statements(tag fabric.Tag, members []fabric.GUID) (lines []string) {
	ofVFs, ofNodes := split(members)
	name := fmt.Sprintf("%s%04x=%#04x", jobName, tag, tag)
	lines = append(lines, statement(name+", indx0, ipoib, defmember=full", ofVFs)...)
	lines = append(lines, statement(name+", ipoib, defmember=full", ofNodes)...)
	return append(lines, statement(defaultName+", defmember=limited", ofVFs)...)
}

func split(members []fabric.GUID) (ofVFs, ofNodes []fabric.GUID) {
	for _, g := range slices.Compact(slices.Sorted(slices.Values(members))) {
		if g.OfVF() {
			ofVFs = append(ofVFs, g)
		} else {
			ofNodes = append(ofNodes, g)
		}
	}
	return ofVFs, ofNodes
}

func statement(head string, members []fabric.GUID) (lines []string) {
	for some := range slices.Chunk(members, membersPerLine) {
		var ports []string
		for _, g := range some {
			ports = append(ports, g.Hex())
		}
		lines = append(lines, head+" : "+strings.Join(ports, ", ")+" ;")
	}
	return lines
}

// parseLine reads a line of the block into p.
func (p Partitions) parseLine(text string) error {
	switch {
	case strings.HasPrefix(text, "#"), strings.HasPrefix(text, defaultName+","): // follow from the others
		return nil
	case !strings.HasPrefix(text, jobName):
		return fmt.Errorf("%.60q is not a line of Slurm-V's", text)
	}
	head, members, _ := strings.Cut(text, ":")
	members, rest, ended := strings.Cut(members, ";")
	tag, err := parseTag(head)
	if err != nil || !ended || strings.TrimSpace(rest) != "" {
		return fmt.Errorf("%.60q is not a line of Slurm-V's: %w", text, cmp.Or(err, errUnended))
	}
	for word := range strings.SplitSeq(members, ",") {
		g, err := fabric.ParseGUID(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		p[tag] = append(p[tag], g)
	}
	return p.check(tag)
}

var errUnended = fmt.Errorf("it has no %q, or something after it", ";")

// parseTag reads the P_Key of "slurmv_1004=0x1004, …".
func parseTag(head string) (fabric.Tag, error) {
	name, _, _ := strings.Cut(head, ",")
	_, key, _ := strings.Cut(name, "=")
	n, err := strconv.ParseUint(strings.TrimSpace(key), 0, 16)
	if err != nil {
		return 0, fmt.Errorf("%.20q is not a P_Key", key)
	}
	return fabric.Tag(n), nil
}

// check returns an error for a partition that OpenSM would refuse, or that is no job's.
func (p Partitions) check(tag fabric.Tag) error {
	if tag < 1 || tag > 0x7ffe {
		return fmt.Errorf("%#04x is not the P_Key of a job: those are 0x0001 to 0x7ffe", uint16(tag))
	}
	if slices.Contains(p[tag], 0) {
		return fmt.Errorf("the partition %s has a member without a GUID", tag.Text(fabric.PKey))
	}
	return nil
}

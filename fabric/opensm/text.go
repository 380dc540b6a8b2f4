package opensm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
)

// A textError says which line of partitions.conf is wrong.
type textError struct {
	Line int // from 1
	Err  error
}

func (e *textError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *textError) Unwrap() error { return e.Err }

func at(line int, format string, args ...any) error {
	return &textError{line, fmt.Errorf(format, args...)}
}

// A layout is a file, cut at the marked lines. before + block + after is the whole text.
type layout struct {
	before, block, after string
	partitions           Partitions
	begun, ended         int // lines of the markers; 0 without a block
}

// parse returns the jobs' partitions of a file; none if it has no block. The error, for a
// file whose block is damaged, is a [*TextError].
func parse(text string) (Partitions, error) {
	l, err := cut(text)
	return l.partitions, err
}

func cut(text string) (l layout, err error) {
	l.partitions = Partitions{}
	line := 0
	for whole := range strings.Lines(text) {
		line++
		part, err := l.take(line, whole)
		if err != nil {
			return layout{}, err
		}
		*part += whole
	}
	if l.begun > 0 && l.ended == 0 {
		return layout{}, at(l.begun, "%q has no %q after it: restore the lines between them, or remove this line and all below it that are Slurm-V's; jobs then lose their partitions", begin, end)
	}
	return l, nil
}

// take returns the part of the file that a line belongs to, and reads the lines of the block.
func (l *layout) take(line int, whole string) (part *string, err error) {
	text := strings.TrimSpace(whole)
	inside := l.begun > 0 && l.ended == 0
	switch {
	case strings.Contains(whole, "\r"):
		return nil, at(line, "it ends like a line of Windows, which makes OpenSM ignore the whole file: remove the carriage returns (dos2unix)")
	case text == begin && l.begun > 0:
		return nil, at(line, "a second %q, after that of line %d: remove one of the two blocks", begin, l.begun)
	case text == begin:
		l.begun = line
		return &l.block, nil
	case text == end && !inside:
		return nil, at(line, "%q without a %q before it: remove this line, and all above it that are Slurm-V's", end, begin)
	case text == end:
		l.ended = line
		return &l.block, nil
	case inside:
		if err := l.partitions.parseLine(text); err != nil {
			return nil, at(line, "%w; the site's own lines belong above %q or below %q", err, begin, end)
		}
		return &l.block, nil
	case l.begun > 0:
		return &l.after, nil
	}
	return &l.before, nil
}

// Put returns the file with the partitions p instead of those that it has. It changes no byte
// of the site's own text, before and after the block. A file without a block gets one at its
// end; an empty block stays.
//
// It returns an error where OpenSM would read something else than is meant: where the site's
// text above the block ends within a partition, has a job's P_Key, or has no partition at all.
func (p Partitions) Put(text string) (string, error) {
	l, err := cut(text)
	if err != nil {
		return "", err
	}
	if len(p) == 0 && l.begun == 0 {
		return text, nil
	}
	for tag := range p {
		if err := p.check(tag); err != nil {
			return "", err
		}
	}
	if err := l.checkSite(p); err != nil {
		return "", err
	}
	if l.before != "" && !strings.HasSuffix(l.before, "\n") {
		l.before += "\n"
	}
	return l.before + p.render() + l.after, nil
}

func (l layout) checkSite(p Partitions) error {
	above, open := definitions(l.before, 0)
	if open > 0 {
		return at(open, "a partition begins here that no %q ends, so that OpenSM would take Slurm-V's lines for its members: end it", ";")
	}
	below, _ := definitions(l.after, l.ended)
	site := slices.Concat(above, below)
	if len(site) == 0 && len(p) > 0 {
		return errNoSite
	}
	for _, d := range site {
		if _, ours := p[d.tag]; ours {
			return at(d.line, "the site's own partition %q has the P_Key %s of a job: give it another, or take that one out of the pool", d.name, d.tag.Text(fabric.PKey))
		}
	}
	return checkBelow(below)
}

// checkBelow refuses what would make VFs full members of the default partition after all.
func checkBelow(below []definition) error {
	for _, d := range below {
		if d.tag == defaultKey {
			return at(d.line, "the default partition stands below Slurm-V's lines, and would count instead of them: move it above %q", begin)
		}
	}
	return nil
}

// defaultKey is the P_Key of the default partition, in which every port is.
const defaultKey fabric.Tag = 0x7fff

// Without any partition in the file, or without the file, OpenSM makes all ports full members
// of the default partition. With a job's partition alone, it would make them limited members,
// and all hosts would lose each other.
var errNoSite = fmt.Errorf("it has no partition of the site, and with one of a job OpenSM would stop all other ports from talking to each other: write the line %q into it, which is what OpenSM does now, and send SIGHUP to OpenSM",
	"Default=0x7fff, ipoib : ALL=full ;")

// Notes says in which of the site's own partitions jobs can talk to each other: those that
// have all ports as full members.
func Notes(text string) (notes []string) {
	found, _ := definitions(text, 0)
	for _, d := range found {
		if d.tag != defaultKey && d.hasAll() {
			notes = append(notes, fmt.Sprintf("line %d: all ports are full members of the partition %q, those of jobs too: jobs can talk to each other there", d.line, d.name))
		}
	}
	return notes
}

// A definition is a partition in the site's own text.
type definition struct {
	line    int
	name    string
	tag     fabric.Tag // 0 where OpenSM chooses
	flags   string     // all before the colon
	members string
}

// hasAll reports whether all hosts are full members.
func (d definition) hasAll() bool {
	usual := strings.Contains(strings.ReplaceAll(d.flags, " ", ""), "defmember=full")
	for member := range strings.SplitSeq(d.members, ",") {
		name, as, said := strings.Cut(strings.TrimSpace(member), "=")
		all := strings.TrimSpace(name) == "ALL" || strings.TrimSpace(name) == "ALL_CAS"
		if all && (strings.TrimSpace(as) == "full" || !said && usual) {
			return true
		}
	}
	return false
}

// definitions returns the partitions of a text whose first line comes after line before, and
// the line in which one begins that does not end; 0 without.
func definitions(text string, before int) (found []definition, open int) {
	var statement string
	line := before
	for whole := range strings.Lines(text) {
		line++
		code, _, _ := strings.Cut(whole, "#")
		for code != "" {
			piece, rest, ended := strings.Cut(code, ";")
			if open == 0 && strings.TrimSpace(piece) != "" {
				open = line
			}
			statement, code = statement+piece, rest
			if ended && open > 0 {
				found = append(found, define(open, statement))
				statement, open = "", 0
			}
		}
	}
	return found, open
}

// define reads "NAME=KEY, flags : members". OpenSM takes a name that is a number for a P_Key.
func define(line int, statement string) definition {
	d := definition{line: line}
	d.flags, d.members, _ = strings.Cut(statement, ":")
	first, _, _ := strings.Cut(d.flags, ",")
	name, key, _ := strings.Cut(first, "=")
	d.name = strings.TrimSpace(name)
	if key == "" {
		key = name
	}
	if d.name == "Default" {
		d.tag = defaultKey
	}
	if n, err := strconv.ParseUint(strings.TrimSpace(key), 0, 64); err == nil {
		d.tag = fabric.Tag(n & 0x7fff)
	}
	return d
}

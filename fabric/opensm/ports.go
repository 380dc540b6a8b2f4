package opensm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/program"
)

// Ports asks the ports of the fabric for their P_Key tables, with smpquery(8) of
// infiniband-diags, as root. It has to run on OpenSM's host, or on another one that is a full
// member of the default partition: to others, the subnet manager does not show all ports.
type Ports struct {
	Env []string // of smpquery; nil for the caller's own
	Dir string   // in which smpquery runs; "" for the caller's own
}

// Membership is what a port's table says of a P_Key.
type Membership string

// The values of Membership.
const (
	Full    Membership = "full"
	Limited Membership = "limited"
	None    Membership = "none"
	Absent  Membership = "absent" // no such port is on the fabric, as before a VF's VM runs
)

// errVirtual matches the error for a port whose table cannot be read: it shares the address of
// a physical port, which answers instead.
var errVirtual = errors.New("the port is virtual")

// Members returns what the table of each port says of the P_Key; with an error, those of the
// ports before it.
func (p Ports) Members(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) (map[fabric.GUID]Membership, error) {
	found := map[fabric.GUID]Membership{}
	for _, g := range guids {
		table, err := p.table(ctx, g)
		if err != nil {
			return found, fmt.Errorf("read the P_Keys of port %s: %w", g.Hex(), err)
		}
		found[g] = membership(table, pkey)
	}
	return found, nil
}

// ConfirmGone returns when none of these ports has the P_Key. A port that is not on the fabric
// has none: its VF was reset, or its node is off. It asks the others again and again, until ctx
// ends.
func (p Ports) ConfirmGone(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	fail := func(left []fabric.GUID, err error) error {
		return fmt.Errorf("confirm the P_Key %s: the ports %s still have it: %w", pkey.Text(fabric.PKey), some(left), err)
	}
	if err := p.checkView(ctx); err != nil {
		return fmt.Errorf("confirm the P_Key %s: %w", pkey.Text(fabric.PKey), err)
	}
	left := slices.Clone(guids)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		now, err := p.Members(ctx, pkey, left)
		left = slices.DeleteFunc(left, func(g fabric.GUID) bool { return now[g] == None || now[g] == Absent })
		if err != nil && (errors.Is(err, errVirtual) || ctx.Err() != nil) {
			return fail(left, err)
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fail(left, errors.Join(err, context.Cause(ctx)))
		case <-time.After(pause):
		}
	}
}

// some lists at most three ports.
func some(guids []fabric.GUID) string {
	var names []string
	for _, g := range guids[:min(len(guids), 3)] {
		names = append(names, g.Hex())
	}
	if more := len(guids) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func membership(table []uint16, pkey fabric.Tag) Membership {
	switch full := uint16(pkey) | fabric.FullMember; {
	case table == nil:
		return Absent
	case slices.Contains(table, full):
		return Full
	case slices.Contains(table, full&^fabric.FullMember):
		return Limited
	}
	return None
}

// checkView makes sure that this host sees all ports. To a limited member the subnet manager
// denies that there are others, and they would count as absent.
func (p Ports) checkView(ctx context.Context) error {
	out, err := p.smpquery(ctx, "-D", "pkeys", "0")
	if err != nil {
		return err
	}
	table, err := parseTable(out)
	if err == nil && membership(table, defaultKey) != Full {
		err = errors.New("this host is no full member of the default partition, so the subnet manager does not show it all ports: run this on OpenSM's host (opensm_command of slurmv.toml)")
	}
	return err
}

// table returns the P_Key table of a port, or nil if it is not on the fabric.
func (p Ports) table(ctx context.Context, g fabric.GUID) ([]uint16, error) {
	out, err := p.smpquery(ctx, "-G", "pkeys", g.Hex())
	if errors.Is(err, errAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	table, err := parseTable(out)
	if err != nil {
		return nil, err
	}
	return table, p.checkPort(ctx, g)
}

// checkPort makes sure that it was the port itself that answered.
func (p Ports) checkPort(ctx context.Context, g fabric.GUID) error {
	out, err := p.smpquery(ctx, "-G", "nodeinfo", g.Hex())
	if err != nil {
		return err
	}
	return answeredBy(g, out)
}

// answeredBy reads which port a node's information comes from.
func answeredBy(g fabric.GUID, out string) error {
	answered := portGUID.FindStringSubmatch(out)
	if answered == nil {
		return fmt.Errorf("smpquery does not say which port answered: %.200q", out)
	}
	if got, err := fabric.ParseGUID(answered[1]); err != nil || got != g {
		return fmt.Errorf("%w: port %s answers for it, whose P_Keys are not its own; only a subnet manager that knows virtual ports, such as UFM, can tell", errVirtual, answered[1])
	}
	return nil
}

var (
	portGUID = regexp.MustCompile(`(?m)^PortGuid:\.*(0x[0-9a-fA-F]+)$`)
	tableRow = regexp.MustCompile(`(?m)^ *[0-9]+:((?: 0x[0-9a-fA-F]{4})+) *$`)
)

// parseTable reads what smpquery prints of a P_Key table: rows such as "   8: 0x9004 0x7fff …".
// 0x0000 is an empty place (InfiniBand Architecture Specification, volume 1, 10.9.2).
func parseTable(text string) (table []uint16, err error) {
	table = []uint16{}
	for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
		for word := range strings.FieldsSeq(row[1]) {
			key, err := strconv.ParseUint(word, 0, 16)
			if err != nil {
				return nil, err
			}
			if key != 0 {
				table = append(table, uint16(key))
			}
		}
	}
	if !tableRow.MatchString(text) {
		return nil, fmt.Errorf("smpquery printed no P_Key table: %.200q", text)
	}
	return table, nil
}

var errAbsent = errors.New("no such port is on the fabric")

// noSuchPath are the answers of the subnet manager for a port that it does not have: no
// records, and an invalid GID (InfiniBand Architecture Specification, volume 1, 15.2.2).
var noSuchPath = regexp.MustCompile(`MAD completed with error status 0x[35]00\b`)

// smpquery runs it with -e, so that it says whether the subnet manager has answered.
func (p Ports) smpquery(ctx context.Context, by, what, address string) (string, error) {
	path, err := program.Find("", "smpquery")
	if err != nil {
		return "", fmt.Errorf("%w: install infiniband-diags", err)
	}
	command := exec.CommandContext(ctx, path, "-e", "-t", "500", by, what, address)
	command.Env, command.Dir, command.WaitDelay = p.Env, p.Dir, time.Second
	var out, messages bytes.Buffer
	command.Stdout, command.Stderr = &out, &messages
	err = command.Run()
	switch {
	case err == nil:
		return out.String(), nil
	case noSuchPath.Match(messages.Bytes()):
		return "", errAbsent
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	}
	return "", fmt.Errorf("smpquery %s %s %s: %w: %s", by, what, address, err, lastLines(messages.String()))
}

// lastLines returns the end of a program's messages, on one line.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

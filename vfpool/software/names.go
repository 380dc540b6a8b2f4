package software

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// An interface name has at most 15 bytes: three for the prefix, up to seven for the PF or
// bridge, and up to five for a number.
const (
	tapPrefix    = "svf" // then the PF, and the VF's index
	plugPrefix   = "svs" // then as the tap that is wired to this port of a bridge
	endPrefix    = "svn" // then as the port at the other end of the wire
	ifbPrefix    = "svi" // then the PF
	bridgePrefix = "svv" // then the declared bridge, and the tag
	uplinkPrefix = "svu" // then as the bridge that it belongs to
)

func tapName(pf string, index int) string { return numbered(tapPrefix, pf, index) }

func plugName(pf string, index int) string { return numbered(plugPrefix, pf, index) }

func wireEndName(pf string, index int) string { return numbered(endPrefix, pf, index) }

func ifbName(pf string) string { return ifbPrefix + short(pf) }

func tagBridgeName(bridge string, tag uint16) string {
	return numbered(bridgePrefix, bridge, int(tag))
}

func uplinkName(tagBridge string) string {
	return uplinkPrefix + strings.TrimPrefix(tagBridge, bridgePrefix)
}

func numbered(prefix, name string, number int) string {
	return fmt.Sprintf("%s%s-%d", prefix, short(name), number)
}

// short returns a name unchanged if it leaves room, and otherwise a hash of it. The hash
// has one letter more than the longest unchanged name, so the two cannot be equal.
func short(name string) string {
	const most = 6
	if len(name) <= most {
		return name
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	return fmt.Sprintf("%0*s", most+1, strconv.FormatUint(uint64(hash.Sum32()), 36))
}

// split is the inverse of numbered, except that name is what short made of it.
func split(prefix, link string) (name string, number int, ok bool) {
	rest, ours := strings.CutPrefix(link, prefix)
	at := strings.LastIndexByte(rest, '-')
	if !ours || at < 1 {
		return "", 0, false
	}
	number, err := strconv.Atoi(rest[at+1:])
	return rest[:at], number, err == nil && number >= 0
}

// isPlugOf reports whether a link has the name of the port of one of the PF's VFs.
func isPlugOf(pf, link string) bool {
	name, _, ok := split(plugPrefix, link)
	return ok && name == short(pf)
}

// mark is the alias of all links of this package.
const mark = bridgeport.AliasPrefix + "vf "

func (p port) alias() string { return alias(p.vf) }

func alias(vf device.VF) string { return fmt.Sprintf("%s%s/%d", mark, vf.PF, vf.Index) }

// ours reports whether a link whose name is one of this package's belongs to it. A link
// without an alias does: a crash came between making and marking it.
func ours(alias string) bool { return alias == "" || strings.HasPrefix(alias, mark) }

package pmi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A Layout tells a relay where its rank runs.
type Layout struct {
	Ranks        int          // of the whole program: PMI_SIZE
	VMsPerNode   int          //
	VM           int          // index of this rank's VM on its node
	Distribution Distribution // of a node's tasks over its VMs
	PMIx         bool         // a PMIx server in the VM speaks PMI for the program
	Member       *Membership  // learns whether the program is a rank; may be nil
	Abort        func([]byte) // takes the program's request to end its run; nil passes it on
	Shared       *Shared      // memory that the VMs of a node share; nil if MPI has none
	Absence      *Absence     // tells ranks of tasks that have ended without MPI_Init; nil to let them wait
}

// pmixCommand is what slurmv-pmix says to the relay when the program has connected to it (joined=1) and when it
// has finalized (joined=0). It goes no further. Only the latter is answered: the program may end afterwards.
const pmixCommand = "slurmv-pmix"

const mappingKey = "PMI_process_mapping"

// maxUnanswered bounds the requests that a client may send without reading answers.
const maxUnanswered = 1024

var errUnanswered = errors.New("relay PMI: the program sends requests and reads no answers")

// A conversation is the state that a relay keeps of one client's exchange. Its methods
// are called from both directions.
type conversation struct {
	layout Layout
	server io.Writer
	turn   chan struct{} // is full during a message to the server, and until its answer if the relay waits for that

	mu      sync.Mutex
	dialect dialect     // 0 before the client's first message
	asked   []bool      // unanswered requests for values: true if for the mapping
	own     *question   // of the relay's own, and unanswered; nil if there is none
	waiting *time.Timer // until the relay asks for absent tasks; nil if the program is in no barrier
}

// framing returns the dialect of the next message; the first is a line in both dialects.
func (c *conversation) framing() dialect {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.dialect, pmi1)
}

// request takes a client's message. It returns what to send to the server, or what to
// answer the client at once; either may be nil.
func (c *conversation) request(msg []byte) (forward, answer []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd, _ := field(max(c.dialect, pmi1), msg, "cmd"); cmd == sharedCommand {
		c.layout.Shared.hear(max(c.dialect, pmi1), msg)
		return nil, nil, nil
	}
	if cmd, _ := field(pmi1, msg, "cmd"); cmd == pmixCommand {
		answer, err = c.ofPMIx(msg)
		return nil, answer, err
	}
	if c.dialect == 0 {
		return c.begin(msg)
	}
	c.follow(msg)
	switch cmd, _ := field(c.dialect, msg, "cmd"); cmd {
	case "get", "info-getjobattr":
		key, _ := field(c.dialect, msg, "key")
		if len(c.asked) == maxUnanswered {
			return nil, nil, errUnanswered
		}
		c.asked = append(c.asked, key == mappingKey)
	case "info-putnodeattr", "info-getnodeattr":
		return c.nodeAttribute(msg), nil, nil
	case "barrier_in", "kvs-fence":
		c.enter()
	case "abort":
		if c.layout.Abort != nil {
			c.layout.Abort(bytes.Clone(msg))
			return nil, nil, nil
		}
	case "spawn":
		return nil, frame(pmi2, "cmd=spawn-response;rc=1;errmsg=spawning is not available in VMs;"), nil
	case "":
		if bytes.HasPrefix(msg, []byte("mcmd=spawn")) {
			return nil, refuseSpawn(msg), nil
		}
	}
	return msg, nil, nil
}

// begin takes the client's first message, which says in which dialect the next ones are.
func (c *conversation) begin(msg []byte) (forward, answer []byte, err error) {
	if !c.layout.PMIx && !c.layout.Shared.admit() {
		return nil, nil, ErrNotShared
	}
	version, _ := field(pmi1, msg, "pmi_version")
	c.dialect = dialectOf(version)
	c.follow(msg)
	return msg, nil, nil
}

// follow notes whether the program is a rank. A PMIx server speaks PMI before the program is one, and longer.
func (c *conversation) follow(msg []byte) {
	if c.layout.PMIx {
		return
	}
	if first, _ := field(pmi1, msg, "cmd"); first == "init" { // a line in both dialects
		c.layout.Member.join(c.dialect)
	}
	if cmd, _ := field(c.dialect, msg, "cmd"); cmd == "finalize" {
		c.layout.Member.leave()
	}
}

// ofPMIx takes a message of slurmv-pmix and returns its answer.
func (c *conversation) ofPMIx(msg []byte) ([]byte, error) {
	if joined, _ := field(pmi1, msg, "joined"); joined != "1" {
		c.layout.Member.leave()
		c.leave()
		return []byte("cmd=" + pmixCommand + " rc=0\n"), nil
	}
	c.layout.Member.join(pmi1)
	c.enter()
	if !c.layout.Shared.admit() {
		return nil, ErrNotShared
	}
	return nil, nil
}

// refuseSpawn answers a PMI-1 spawn request. The request may have several messages; the
// answer follows the last.
func refuseSpawn(msg []byte) []byte {
	lines := strings.ReplaceAll(string(msg), "\n", " ")
	total, _ := field(pmi1, []byte(lines), "totspawns")
	if sofar, _ := field(pmi1, []byte(lines), "spawnssofar"); sofar != total {
		return nil
	}
	return []byte("cmd=spawn_result rc=1\n")
}

// nodeAttribute puts the VM before the key of an attribute of the node.
func (c *conversation) nodeAttribute(msg []byte) []byte {
	if c.layout.VMsPerNode <= 1 || c.layout.Shared.Ready() {
		return msg
	}
	named := fmt.Sprintf(";key=vm%d-", c.layout.VM)
	return frame(pmi2, strings.Replace(body(pmi2, msg), ";key=", named, 1))
}

// answer takes a server's message and returns the message for the client; nil if it was for the relay.
func (c *conversation) answer(msg []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := max(c.dialect, pmi1)
	cmd, _ := field(d, msg, "cmd")
	switch {
	case c.isOwn(d, msg):
		return nil
	case cmd == "barrier_out", cmd == "kvs-fence-response":
		c.leave()
	}
	if cmd != "get_result" && cmd != "info-getjobattr-response" || len(c.asked) == 0 {
		return msg
	}
	mapping := c.asked[0]
	c.asked = c.asked[1:]
	if value, found := field(d, msg, "value"); mapping && found {
		return c.mapping(d, msg, value)
	}
	return msg
}

// mapping returns msg with the mapping by VM in place of value. If no mapping fits into a
// message, the answer is "not found": MPICH then compares host names, which are the VMs'
// own.
func (c *conversation) mapping(d dialect, msg []byte, value string) []byte {
	m, err := ParseMapping(value)
	if err != nil {
		return notFound(d)
	}
	if c.layout.PMIx || !c.layout.Shared.Ready() {
		m = m.ToVMs(c.layout.Ranks, c.layout.VMsPerNode, c.layout.Distribution)
	}
	for _, short := range []Mapping{m, m.Wrapped(c.layout.Ranks)} {
		text := short.String()
		out := frame(d, strings.Replace(body(d, msg), "value="+value, "value="+text, 1))
		if len(text) <= maxValue && (d == pmi2 || len(out) <= maxLine) {
			return out
		}
	}
	return notFound(d)
}

func notFound(d dialect) []byte {
	if d == pmi2 {
		return frame(pmi2, "cmd=info-getjobattr-response;rc=0;found=FALSE;")
	}
	return []byte("cmd=get_result rc=1\n")
}

// frame puts the length before a PMI-2 body, in Slurm's form.
func frame(d dialect, body string) []byte {
	if d == pmi2 {
		return fmt.Appendf(nil, "%-6d%s", len(body), body)
	}
	return []byte(body)
}

// body returns a message without its length.
func body(d dialect, msg []byte) string {
	if d == pmi2 {
		return string(msg[min(6, len(msg)):])
	}
	return string(msg)
}

// field returns the value of the first field of that name.
func field(d dialect, msg []byte, name string) (string, bool) {
	sep := " "
	if d == pmi2 {
		sep = ";"
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(body(d, msg), "\n"), sep) {
		if value, ok := strings.CutPrefix(part, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

package vmstep

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync/atomic"
)

// The kinds of frames and the values they carry.
const (
	KindBackend  = "backend"  // agent to keeper, before it makes anything: Backend
	KindProgress = "progress" // agent to keeper: Progress
	KindVMs      = "vms"      // hold to keeper: nodeagent.NodeVMs
	KindMap      = "map"      // keeper to hold: []nodeagent.NodeVMs
	KindReady    = "ready"    // hold to keeper: nothing; the node's VMs have the map
	KindFailed   = "failed"   // agent or hold to keeper: Failure
	KindClaim    = "claim"    // claim to slurm-v-run: nodeagent.ClaimMessage
	KindData     = "data"     // query to slurmv: output of a program in a VM, or of a VM's console
)

// Progress says which stage of its launch a VM has entered, or how far the node is with
// work for all of its VMs. Millis counts from the beginning of the launch on the node.
type Progress struct {
	VM     int    `json:"vm"`             // number in the job
	Stage  string `json:"stage"`          // "" if it is about the node
	Note   string `json:"note,omitempty"` // about the node
	Millis int64  `json:"ms"`
}

// Failure is one sentence about why a node cannot go on.
type Failure struct {
	Error string `json:"error"`

	// Elsewhere is set if another step of the job has the VMs.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

const (
	magic = "@slurmv1"

	// chunk is how many bytes of JSON a line carries. srun cuts lines at 1024 bytes and
	// mixes the pieces with lines of other nodes. The base64 of 640 bytes leaves room for
	// the longest names.
	chunk = 640

	maxLine   = 1024
	maxNode   = 64
	maxParts  = 1 << 15
	maxBody   = chunk * maxParts // 20 MiB, about 100000 VMs; bounds compressed messages and their contents
	maxOpen   = 4096             // incomplete messages at one time
	maxPrefix = 64               // what Slurm may put before a line, such as "slurmstepd-n1: "
)

// sequence numbers the messages of this process, to tell their parts apart.
var sequence atomic.Uint32

// WriteFrame writes value as the lines of one message. It calls Write once for each line,
// because Slurm does not break up a line that is written whole.
func WriteFrame(w io.Writer, node, kind string, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s for node %s: %w", kind, node, err)
	}
	if len(body) > chunk {
		body = deflate(body)
	}
	parts := (len(body) + chunk - 1) / chunk
	seq := sequence.Add(1)
	for i := range parts {
		part := body[i*chunk : min((i+1)*chunk, len(body))]
		line := fmt.Sprintf("%s %s %s %d %d/%d %s\n", magic, node, kind, seq, i+1, parts,
			base64.StdEncoding.EncodeToString(part))
		if _, err := io.WriteString(w, line); err != nil {
			return fmt.Errorf("write %s of node %s: %w", kind, node, err)
		}
	}
	return nil
}

// deflate compresses a message that is longer than a line. srun sends the map of all VMs to
// each node, line by line, and most of the map is repetition.
func deflate(body []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(body) // a Buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// deflated is the first byte of deflate's results (RFC 1950). No JSON begins with it.
const deflated = 'x'

// inflate returns the JSON of a message, compressed or not.
func inflate(body []byte) ([]byte, error) {
	if len(body) == 0 || body[0] != deflated {
		return body, nil
	}
	r, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if len(text) > maxBody {
		return nil, fmt.Errorf("more than %d bytes", maxBody)
	}
	return text, err
}

// A Message is a reassembled frame.
type Message struct {
	Node, Kind string
	Body       []byte // JSON
}

// Decode stores the message's value in v.
func (m Message) Decode(v any) error {
	if err := json.Unmarshal(m.Body, v); err != nil {
		return fmt.Errorf("message %q of node %s is not understood: %w", m.Kind, m.Node, err)
	}
	return nil
}

// Frames finds messages among the lines of a stream in which several nodes and
// other programs write. It is an io.Writer: feed it the stream in any pieces.
type Frames struct {
	Message func(Message)     // called for every whole message
	Other   func(line string) // called for every other line, without its end

	line  []byte
	open  map[messageID]*parts
	order []messageID // of open, oldest first
}

type messageID struct {
	node, kind string
	seq        uint32
}

// parts of one message. They come in order: one stream, one writer per message.
type parts struct {
	next, total int
	body        []byte
}

// Write takes more of the stream. It never fails.
func (f *Frames) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		f.add(p[:i])
		f.endLine()
		p = p[i+1:]
	}
	f.add(p)
	return n, nil
}

// Close handles the last line, if it has no line end.
func (f *Frames) Close() error {
	if len(f.line) > 0 {
		f.endLine()
	}
	return nil
}

// add appends to the current line. A line that is too long for a frame goes to
// Other in pieces, so that memory stays bounded.
func (f *Frames) add(p []byte) {
	for len(f.line)+len(p) > maxLine {
		room := maxLine - len(f.line)
		f.line = append(f.line, p[:room]...)
		p = p[room:]
		f.endLine()
	}
	f.line = append(f.line, p...)
}

func (f *Frames) endLine() {
	line := string(bytes.TrimRight(f.line, "\r"))
	f.line = f.line[:0]
	if id, p, ok := parseLine(line); ok {
		f.take(id, p)
	} else if f.Other != nil {
		f.Other(line)
	}
}

// part is one line of a message: number of total.
type part struct {
	number, total int
	body          []byte
}

var framePattern = regexp.MustCompile(`^(?:[^@]{0,` + strconv.Itoa(maxPrefix) + `})` + magic +
	` ([A-Za-z0-9._-]{1,` + strconv.Itoa(maxNode) + `}) ([a-z]{1,16}) ([0-9]{1,10}) ([0-9]{1,6})/([0-9]{1,6}) ([A-Za-z0-9+/=]+)$`)

func parseLine(line string) (messageID, part, bool) {
	m := framePattern.FindStringSubmatch(line)
	if m == nil {
		return messageID{}, part{}, false
	}
	seq, err := strconv.ParseUint(m[3], 10, 32)
	if err != nil {
		return messageID{}, part{}, false
	}
	number, _ := strconv.Atoi(m[4])
	total, _ := strconv.Atoi(m[5])
	body, err := base64.StdEncoding.DecodeString(m[6])
	if err != nil || len(body) > chunk || number < 1 || number > total || total > maxParts {
		return messageID{}, part{}, false
	}
	return messageID{m[1], m[2], uint32(seq)}, part{number, total, body}, true
}

// take adds a part. If a part is out of order, others were lost: take drops the message,
// and its receiver reports that it did not come.
func (f *Frames) take(id messageID, p part) {
	m := f.open[id]
	if m == nil {
		if p.number != 1 {
			return
		}
		m = f.begin(id, p.total)
	}
	if p.number != m.next || p.total != m.total {
		f.drop(id)
		return
	}
	m.next++
	m.body = append(m.body, p.body...)
	if p.number == p.total {
		f.drop(id)
		f.give(id, m.body)
	}
}

// give passes a whole message on, unless it cannot be inflated.
func (f *Frames) give(id messageID, body []byte) {
	if text, err := inflate(body); err == nil {
		f.Message(Message{Node: id.node, Kind: id.kind, Body: text})
	}
}

func (f *Frames) begin(id messageID, total int) *parts {
	if f.open == nil {
		f.open = map[messageID]*parts{}
	}
	if len(f.order) == maxOpen {
		f.drop(f.order[0])
	}
	m := &parts{next: 1, total: total}
	f.open[id] = m
	f.order = append(f.order, id)
	return m
}

func (f *Frames) drop(id messageID) {
	delete(f.open, id)
	for i, o := range f.order {
		if o == id {
			f.order = append(f.order[:i], f.order[i+1:]...)
			return
		}
	}
}

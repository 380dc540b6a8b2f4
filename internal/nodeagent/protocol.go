// Package nodeagent is the unix socket on which the agent of a job and node is
// reached: by the job's own hold and exec processes, and by slurmv for people.
//
// Every connection carries one operation. The client opens with one line of
// JSON, a [Request]; the server answers with one line of JSON, a [Reply]. After
// a Reply without Error the connection belongs to the operation:
//
//	hold     both ends exchange [HoldMessage] lines
//	exec     a yamux session; the connecting end is its client
//	claim    the server sends [ClaimMessage] lines; the connection is the claim's life
//	ps       nothing more; the server closes
//	console  raw bytes, server to client
//	forward  raw bytes both ways, half-close is kept
//	key      nothing more; the server closes
//	stop     nothing more; the server closes when the agent is about to exit
//
// Who may call is the server's decision, from the credentials of the peer: others get a
// Reply with Error before they have said anything. A line is bounded; whatever a client
// sends is data from a user.
package nodeagent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

// The operations of a [Request].
const (
	OpHold    = "hold"
	OpExec    = "exec"
	OpClaim   = "claim"
	OpPS      = "ps"
	OpConsole = "console"
	OpForward = "forward"
	OpKey     = "key"
	OpStop    = "stop"
)

// ByDistribution as the VM of a [Request] means: the VM in which the distribution
// puts the calling task.
const ByDistribution = -1

// Limits on one line of JSON, in bytes. A map names every VM of the job.
const (
	MaxRequest = 16 << 10
	MaxReply   = 1 << 20
	MaxMap     = 16 << 20
)

// A Request opens a connection.
type Request struct {
	Op string `json:"op"`

	// VM is the number of a VM in the job. Exec, console and forward use it;
	// exec also takes ByDistribution.
	VM int `json:"vm"`

	// LocalID of LocalTasks is the calling task's place on its node, and
	// Distribution ("block" or "cyclic") spreads the tasks over the node's VMs.
	// Only exec ByDistribution reads them.
	LocalID      int    `json:"local_id,omitempty"`
	LocalTasks   int    `json:"local_tasks,omitempty"`
	Distribution string `json:"distribution,omitempty"`

	// Claim is the claim of the run to which an exec's program belongs.
	Claim *Claim `json:"claim,omitempty"`

	// NoWait refuses a claim at once when every device is claimed.
	NoWait bool `json:"no_wait,omitempty"`

	// Follow keeps a console open for what is still to come.
	Follow bool `json:"follow,omitempty"`

	// Port is the TCP port on 127.0.0.1 of the guest which forward connects to.
	Port uint16 `json:"port,omitempty"`

	// AuthorizedKey is one line of authorized_keys which op key lets into every
	// VM of the node as the job's owner, through the guest's sshd.
	AuthorizedKey string `json:"authorized_key,omitempty"`

	// HostKey is a private host key (OpenSSH format) for that sshd. The first that
	// a node is given stays; the Reply says which it is.
	HostKey string `json:"host_key,omitempty"`
}

// A Reply answers a [Request]. With Error set, one sentence for the user,
// nothing else is and the server closes.
type Reply struct {
	Error string `json:"error,omitempty"`

	// Node describes the VMs of this node: hold, ps, exec and key.
	Node *NodeVMs `json:"node,omitempty"`

	// VM is the one that exec will start the program in.
	VM *VM `json:"vm,omitempty"`

	// IVShmemSize is the size in bytes of the device that an exec has claimed.
	IVShmemSize int64 `json:"ivshmem_size,omitempty"`
}

// NodeVMs is what one node contributes to the VM cluster of a job.
type NodeVMs struct {
	Node     string `json:"node"`
	Rank     int    `json:"rank"`               // position of the node in the job
	Underlay string `json:"underlay,omitempty"` // address at which other nodes reach this one
	VMs      []VM   `json:"vms"`
	HostKey  string `json:"host_key,omitempty"` // public, of the sshds in the VMs; with op key
	Unpinned string `json:"unpinned,omitempty"` // why the VMs have no CPUs to themselves; "" if they have
	Image    *Image `json:"image,omitempty"`    // nil until it is known

	// Began is when the launch began on this node, by its clock: the zero of the
	// times of Stages. Stages are those that the VMs share, in the order in which they
	// began; several go on at once.
	Began  time.Time `json:"began,omitzero"`
	Stages []Stage   `json:"stages,omitempty"`

	// Claims are those under which programs may run on this node.
	Claims []Claim `json:"claims,omitempty"`
}

// An Image is where the VMs of a node read their image, and how it got there.
type Image struct {
	How    string `json:"how"`              // found, waited, copied or direct
	Copied int64  `json:"copied,omitempty"` // bytes, to the node, by this job
	Waited int64  `json:"waited,omitempty"` // ms, for other jobs that were copying
	Note   string `json:"note"`             // for people
}

// A VM is one virtual machine of a job.
type VM struct {
	Number  int     `json:"number"` // in the job, from 0
	Index   int     `json:"index"`  // on the node, from 0
	Name    string  `json:"name"`   // vm<Number>, its host name too
	Address string  `json:"address,omitempty"`
	MAC     string  `json:"mac,omitempty"`
	State   string  `json:"state,omitempty"`  // the stage it is in, or StateReady, StateFailed, StateOff
	Cause   string  `json:"cause,omitempty"`  // how the guest ended, such as "powered itself off"; with StateOff
	Stages  []Stage `json:"stages,omitempty"` // those it has been through, in order

	// CPUs are those of the node to which the vCPUs are pinned, "0-3,8", and
	// EmulatorCPUs those for QEMU's other threads. Both are empty if they are not.
	CPUs         string `json:"cpus,omitempty"`
	EmulatorCPUs string `json:"emulator_cpus,omitempty"`

	// Clock is how the VM's clock was last measured; nil until it is.
	Clock *Clock `json:"clock,omitempty"`
}

// A Clock is how fast a VM's clock runs.
type Clock struct {
	Rate   float64 `json:"rate"`   // 1 is as fast as the node's
	Error  float64 `json:"error"`  // by which the true rate may differ from Rate
	Source string  `json:"source"` // the kernel's clock source: kvm-clock, tsc, hpet …
}

// A Stage of a launch lies between two times in nanoseconds since the launch
// began on its node, on the node's monotonic clock. Queueing starts before zero.
type Stage struct {
	Name  string        `json:"name"`
	Start time.Duration `json:"start_ns"`
	End   time.Duration `json:"end_ns"`
}

// A HoldMessage is one line of the conversation after op hold. Exactly one
// field is set:
//
//	client  Map     all VMs of the job, once; EOF instead ends the VM step
//	server  Ready   every VM of the node knows the map
//	client  Ending  the step ends: no new programs
//	server  Ended   all programs have ended, or were given long enough
//	server  Error   the VMs cannot go on, in one sentence; the server closes
//
// After Ready, EOF from the client changes nothing.
type HoldMessage struct {
	Map    []NodeVMs `json:"map,omitempty"`
	Ready  bool      `json:"ready,omitempty"`
	Ending bool      `json:"ending,omitempty"`
	Ended  bool      `json:"ended,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// SocketPath returns where the agent of a job listens; run is the run directory
// of the node. The restart count is part of the identity of a job.
func SocketPath(run string, job, restart uint32) string {
	id := strconv.FormatUint(uint64(job), 10) + "." + strconv.FormatUint(uint64(restart), 10)
	return filepath.Join(run, "jobs", id, "agent.sock")
}

// ErrLineTooLong is returned for a line above its limit.
var ErrLineTooLong = errors.New("line is too long")

// A Conn is a connection from which lines of JSON and then raw bytes can be
// read: Read returns also what was buffered behind a line. Both ends use it.
type Conn struct {
	net.Conn
	in *bufio.Reader
}

// NewConn wraps a connection on which nothing has been read.
func NewConn(c net.Conn) *Conn {
	return &Conn{Conn: c, in: bufio.NewReader(c)}
}

// Read reads raw bytes.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// CloseWrite ends the sending direction, where the transport can.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// ReadJSON reads one line of at most limit bytes into v. It returns io.EOF if
// the peer closed between two lines.
func (c *Conn) ReadJSON(limit int, v any) error {
	line, err := c.readLine(limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("message is not understood: %w", err)
	}
	return nil
}

// readLine never holds more than limit bytes, whatever the peer sends.
func (c *Conn) readLine(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, ErrLineTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// WriteJSON writes v as one line.
func (c *Conn) WriteJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.Write(append(line, '\n'))
	return err
}

// dialTimeout bounds the connect; a listening agent accepts at once.
const dialTimeout = 10 * time.Second

// Package nodeagent is the protocol of the unix socket at which the agent of a job and
// node listens. Its clients are the job's own tasks (hold, claim and slurmv-relay), and
// slurmv for people.
//
// Every connection carries one operation. The client opens with one line of JSON, a
// [Request]; the server answers with one line of JSON, a [Reply]. After a Reply without
// Error, the operation uses the connection:
//
//	hold     both ends exchange [HoldMessage] lines
//	exec     a yamux session; the connecting end is its client
//	claim    the server sends [ClaimMessage] lines; the claim ends with the connection
//	ps       nothing more; the server closes
//	console  raw bytes, server to client
//	forward  raw bytes both ways, half-close is kept
//	key      nothing more; the server closes
//	first    nothing more; the server closes
//	stop     nothing more; the server closes when the agent is about to exit
//
// The server decides by the peer's credentials who may call: others get a Reply with
// Error before they have sent anything. The length of a line is bounded; all that a
// client sends is data from a user.
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
	OpFirst   = "first"
	OpStop    = "stop"
)

// ByDistribution, as the VM of a [Request], stands for the VM in which the distribution puts
// the calling task.
const ByDistribution = -1

// Limits on the length of a line, in bytes. A map names every VM of the job.
const (
	MaxRequest = 16 << 10
	MaxReply   = 1 << 20
	MaxMap     = 16 << 20
)

// MaxWord bounds the word of op first, in bytes.
const MaxWord = 64

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

	// Follow keeps a console open for later output.
	Follow bool `json:"follow,omitempty"`

	// Port is the TCP port on the guest's 127.0.0.1 to which forward connects.
	Port uint16 `json:"port,omitempty"`

	// AuthorizedKey is a line of authorized_keys. Op key makes it valid in every VM of
	// the node, for the job's owner, through the guest's sshd.
	AuthorizedKey string `json:"authorized_key,omitempty"`

	// HostKey is a private host key (OpenSSH format) for that sshd. A node keeps the
	// first one that it gets; the Reply contains the one in use.
	HostKey string `json:"host_key,omitempty"`

	// Word is what op first asks about, of at most MaxWord bytes.
	Word string `json:"word,omitempty"`
}

// A Reply answers a [Request]. If Error, one sentence for the user, is set, the other
// fields are not, and the server closes.
type Reply struct {
	Error string `json:"error,omitempty"`

	// Node describes the VMs of this node, in replies to hold, ps, exec and key.
	Node *NodeVMs `json:"node,omitempty"`

	// VM is the VM in which exec will start the program.
	VM *VM `json:"vm,omitempty"`

	// IVShmemSize is the size in bytes of the device of an exec's claim.
	IVShmemSize int64 `json:"ivshmem_size,omitempty"`

	// First says, in replies to first, that no other task of the job on this node has said the word.
	First bool `json:"first,omitempty"`
}

// NodeVMs is what one node contributes to the VM cluster of a job.
type NodeVMs struct {
	Node     string `json:"node"`
	Rank     int    `json:"rank"`               // position of the node in the job
	Underlay string `json:"underlay,omitempty"` // address at which other nodes reach this one
	VMs      []VM   `json:"vms"`
	HostKey  string `json:"host_key,omitempty"` // public key of the sshds in the VMs; after op key
	Unpinned string `json:"unpinned,omitempty"` // why the VMs have no CPUs of their own; "" if they have
	Accel    string `json:"accel,omitempty"`    // how QEMU runs the VMs: kvm, or tcg, which emulates
	Image    *Image `json:"image,omitempty"`    // nil until it is known

	Firmware string `json:"firmware,omitempty"` // that the VMs boot with: bios or uefi

	// Began is when the launch began on this node, by its clock. The times of Stages
	// count from it. Stages are those that the VMs share, in the order in which they
	// began; several overlap.
	Began  time.Time `json:"began,omitzero"`
	Stages []Stage   `json:"stages,omitempty"`

	// Claims are the claims under which programs may run on this node.
	Claims []Claim `json:"claims,omitempty"`
}

// An Image says where the VMs of a node read their image, and how it got there.
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
	State   string  `json:"state,omitempty"`  // its present stage, or StateReady, StateFailed, StateOff
	Cause   string  `json:"cause,omitempty"`  // how the guest ended, such as "powered itself off"; with StateOff
	Stages  []Stage `json:"stages,omitempty"` // its stages so far, in order

	// CPUs are the node's CPUs to which the vCPUs are pinned, "0-3,8", and EmulatorCPUs
	// those for QEMU's other threads. Both are empty if nothing is pinned.
	CPUs         string `json:"cpus,omitempty"`
	EmulatorCPUs string `json:"emulator_cpus,omitempty"`

	// Clock is the last measurement of the VM's clock; nil before the first.
	Clock *Clock `json:"clock,omitempty"`
}

// A Clock says how fast a VM's clock runs.
type Clock struct {
	Rate   float64 `json:"rate"`   // 1 is as fast as the node's
	Error  float64 `json:"error"`  // largest difference between Rate and the true rate
	Source string  `json:"source"` // the kernel's clock source: kvm-clock, tsc, hpet …
}

// A Stage of a launch has a begin and an end, in nanoseconds since the launch began on
// its node, by the node's monotonic clock. Queueing begins before zero.
type Stage struct {
	Name  string        `json:"name"`
	Start time.Duration `json:"start_ns"`
	End   time.Duration `json:"end_ns"`
}

// A HoldMessage is one line of the conversation after op hold. Exactly one field is set:
//
//	client  Map     all VMs of the job, once; EOF instead ends the VM step
//	server  Ready   every VM of the node has the map
//	client  Ending  the step ends: no new programs
//	server  Ended   all programs have ended, or have had enough time
//	server  Error   why the VMs cannot go on, in one sentence; the server closes
//
// After Ready, EOF from the client changes nothing.
type HoldMessage struct {
	Map    []NodeVMs `json:"map,omitempty"`
	Ready  bool      `json:"ready,omitempty"`
	Ending bool      `json:"ending,omitempty"`
	Ended  bool      `json:"ended,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// SocketPath returns the path of an agent's socket. run is the run directory of the node.
// The restart count is part of the identity of a job.
func SocketPath(run string, job, restart uint32) string {
	id := strconv.FormatUint(uint64(job), 10) + "." + strconv.FormatUint(uint64(restart), 10)
	return filepath.Join(run, "jobs", id, "agent.sock")
}

// errLineTooLong is the error for a line above its limit.
var errLineTooLong = errors.New("line is too long")

// A Conn is a connection with lines of JSON followed by raw bytes. Its Read also returns
// bytes that were buffered after a line. Both ends use it.
type Conn struct {
	net.Conn
	in *bufio.Reader
}

// NewConn wraps a connection from which nothing was read.
func NewConn(c net.Conn) *Conn {
	return &Conn{Conn: c, in: bufio.NewReader(c)}
}

// Read reads raw bytes.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// CloseWrite ends the sending direction, if the transport can do that.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// ReadJSON reads one line of at most limit bytes into v. It returns io.EOF if the peer
// closed between two lines.
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
			return nil, errLineTooLong
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

// Package guest has both ends of the channel between a node agent and the agent inside a
// VM.
//
// The channel is one byte stream: a virtio-serial port in the VM, a unix socket of QEMU on
// the host. The host's end sends greetings until the guest answers ([Connect]), so it finds
// the guest again after either end was replaced. From then on the stream carries a yamux
// session. Each stream of the session begins with one line, a [Header] in JSON, which says
// what the stream is for:
//
//   - setup, hosts, ssh, template, clock, clocksource: one answer line, then the end.
//   - mount: after an answer, the messages of a FUSE file system: requests of the guest's
//     kernel, answers of a server on the host.
//   - egress: after an answer, the packets of the guest's way out of its network.
//   - program: orders to and events of one program. Its standard streams and
//     its PMI descriptor are streams of their own, so that a reader who does
//     not read stalls nobody else, not even signals to the same program.
//   - dial: a connection to a port of the guest's loopback, after an answer.
//
// Closing one direction of a stream has a meaning. The end of a program's control stream
// kills the program and everything it started; the guest confirms when nothing is left. The
// end of stdin is the program's end of file. Closing the other direction of a standard
// stream says that its reader is gone.
//
// [Session] is the host's end, [Server] the guest's. A relay in a Slurm task speaks the
// same protocol through [Proxy], which lets it start programs and do nothing else. The
// sizes of all messages are bounded. The host does not trust the guest's messages.
package guest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// PortName is the name of the virtio-serial port.
const PortName = "org.slurm-v.guest.0"

// The kinds of streams.
const (
	kindSetup       = "setup"
	kindMount       = "mount"
	kindEgress      = "egress"
	kindHosts       = "hosts"
	kindSSH         = "ssh"
	kindTemplate    = "template"
	kindNVDIMM      = "nvdimm"
	kindClock       = "clock"
	kindClockSource = "clocksource"
	kindDial        = "dial"
	kindProgram     = "program"
	kindStdin       = "stdin"
	kindStdout      = "stdout"
	kindStderr      = "stderr"
	kindPMI         = "pmi"
)

const (
	maxHeader   = 1 << 20  // a header line: a program's arguments and environment
	maxHosts    = 16 << 20 // a header line that names all VMs of a job, with their VFs
	maxAnswer   = 64 << 10 // an answer or event line
	maxGroups   = 1 << 16
	maxPrograms = 4096 // at once in one VM
	maxStreams  = 8 * maxPrograms
)

// A Header is the first line of a stream and says what the stream is for.
type Header struct {
	Kind    string   `json:"kind"`
	Command *Command `json:"command,omitempty"`
	Program string   `json:"program,omitempty"` // id of the program that the stream belongs to; the guest made it
	Port    uint16   `json:"port,omitempty"`
	Setup   *Setup   `json:"setup,omitempty"`
	Mount   *Mount   `json:"mount,omitempty"`
	Hosts   []Host   `json:"hosts,omitempty"`
	SSH     *SSH     `json:"ssh,omitempty"`
	Step    int64    `json:"step,omitempty"`   // ns by which to set the clock
	Source  string   `json:"source,omitempty"` // the clock source to use; "" keeps the current one
}

// A Command is a program to run in the VM.
type Command struct {
	// Args are the program and its arguments. A name without a slash is looked up in the
	// PATH of Env; any other is relative to Dir.
	Args Strings `json:"args"`
	Env  Strings `json:"env"`
	// Dir is the working directory. If it cannot be entered, the program runs in /tmp and a
	// line on stderr says so, as with slurmstepd.
	Dir    string   `json:"dir"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	// Umask and Limits are those of the Slurm task; see [TaskLimits].
	Umask  uint32  `json:"umask"`
	Limits []Limit `json:"limits,omitempty"`
	// PMI gives the program a descriptor that leads to [Process.PMI], and its number in
	// PMI_FD.
	PMI bool `json:"pmi,omitempty"`
	// PMIx gives the program's PMI to the run's [PMIxServer] in the VM, which serves it.
	PMIx bool `json:"pmix,omitempty"`
	// Terminal runs the program on a terminal of that size. All its output then comes on
	// stdout.
	Terminal *WindowSize `json:"terminal,omitempty"`
}

// A Limit is a soft resource limit. Its name is the one of setrlimit(2), in lower case and
// without RLIMIT_.
type Limit struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// A WindowSize is the size of a terminal, in characters.
type WindowSize struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// An Exit is how a program ended: by exit with a code, or by a signal.
type Exit struct {
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
}

func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by signal %d", e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// An order goes from the host to a program.
type order struct {
	Signal int         `json:"signal,omitempty"`
	Size   *WindowSize `json:"size,omitempty"`
}

// An event goes from a program to the host.
type event struct {
	Program string `json:"program,omitempty"` // the program is accepted; its streams are opened with this id
	Started bool   `json:"started,omitempty"`
	MPI     string `json:"mpi,omitempty"`  // the MPI library that the program uses, such as libmpi.so.40
	Exit    *Exit  `json:"exit,omitempty"` // the program has ended and all its output was sent
	Gone    bool   `json:"gone,omitempty"` // nothing of the program is left in the VM
	Error   string `json:"error,omitempty"`
}

// An answer ends a request other than a program.
type answer struct {
	Time    int64    `json:"time,omitempty"`    // of the guest's clock, ns since 1970
	Uptime  int64    `json:"uptime,omitempty"`  // of the guest's monotonic clock, ns
	Source  string   `json:"source,omitempty"`  // current clock source of the guest
	Sources []string `json:"sources,omitempty"` // all clock sources of the guest's kernel
	Report  *Report  `json:"report,omitempty"`
	NoFUSE  bool     `json:"no_fuse,omitempty"` // the reason of the error: the guest's kernel has no FUSE
	Error   string   `json:"error,omitempty"`
}

// Strings are the arguments or the environment of a program. They are sent as bytes, since
// they need not be valid UTF-8.
type Strings []string

// MarshalJSON refuses strings with zero bytes, because no program could receive them.
func (s Strings) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	for _, text := range s {
		if strings.ContainsRune(text, 0) {
			return nil, errors.New("an argument or variable contains a zero byte")
		}
		b.WriteString(text)
		b.WriteByte(0)
	}
	return json.Marshal([]byte(b.String()))
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *Strings) UnmarshalJSON(data []byte) error {
	var text []byte
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*s = strings.SplitAfter(string(text), "\x00")
	*s = (*s)[:len(*s)-1] // without the empty rest after the last zero byte
	for i := range *s {
		(*s)[i] = strings.TrimSuffix((*s)[i], "\x00")
	}
	return nil
}

// check refuses commands that this package never sends.
func (c *Command) check() error {
	switch {
	case c == nil || len(c.Args) == 0 || c.Args[0] == "":
		return errors.New("run a program: no program is named")
	case len(c.Groups) > maxGroups:
		return fmt.Errorf("run %.80q: %d groups, a process can have %d", c.Args[0], len(c.Groups), maxGroups)
	case !utf8.ValidString(c.Dir) || strings.ContainsRune(c.Dir, 0):
		return fmt.Errorf("run %.80q: the name of directory %q is not UTF-8", c.Args[0], c.Dir)
	case c.PMIx && !c.PMI:
		return fmt.Errorf("run %.80q: PMIx needs PMI", c.Args[0])
	}
	return nil
}

// headerLine encodes h as the first line of a stream.
func headerLine(h Header) ([]byte, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode a %s request: %w", h.Kind, err)
	}
	switch {
	case h.Kind == kindHosts && len(line) >= maxHosts:
		return nil, fmt.Errorf("%d names of VMs are too many", len(h.Hosts))
	case h.Kind != kindHosts && len(line) >= maxHeader:
		return nil, fmt.Errorf("a %s request of %d bytes is too long: arguments and environment may have %d",
			h.Kind, len(line), base64.StdEncoding.DecodedLen(maxHeader))
	}
	return append(line, '\n'), nil
}

// writeLine writes v as one line of JSON.
func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

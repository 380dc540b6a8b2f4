package nodeagent

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// serve plays an agent that answers one request with reply and then calls act. It returns
// the path of its socket and the request.
func serve(t *testing.T, reply Reply, act func(*Conn)) (path string, asked chan Request) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked = make(chan Request, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		c := NewConn(raw)
		defer c.Close()
		var r Request
		if c.ReadJSON(MaxRequest, &r) == nil {
			asked <- r
			c.WriteJSON(reply)
			act(c)
		}
	}()
	return path, asked
}

func dialed(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func nothing(*Conn) {}

var node = &NodeVMs{Node: "n1", VMs: []VM{{Number: 2, Name: "vm2", State: "running"}}}

func TestExecGivesTheConnectionBehindTheReply(t *testing.T) {
	path, asked := serve(t, Reply{Node: node, VM: &node.VMs[0]}, func(c *Conn) { io.WriteString(c, "raw\nbytes") })
	conn, reply, err := dialed(t, path).Exec(context.Background(),
		Request{VM: ByDistribution, LocalID: 1, LocalTasks: 4, Distribution: "cyclic"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want := Request{Op: OpExec, VM: ByDistribution, LocalID: 1, LocalTasks: 4, Distribution: "cyclic"}
	if diff := cmp.Diff(want, <-asked); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
	if reply.VM.Name != "vm2" {
		t.Errorf("VM = %+v", reply.VM)
	}
	rest, err := io.ReadAll(conn)
	if string(rest) != "raw\nbytes" || err != nil {
		t.Errorf("behind the reply: %q, %v", rest, err)
	}
}

func TestRequestsThatHaveAnAnswer(t *testing.T) {
	tests := map[string]struct {
		call  func(*Client) (any, error)
		reply Reply
		asked Request
		want  any
	}{
		"ps": {func(c *Client) (any, error) { return c.PS(context.Background()) },
			Reply{Node: node}, Request{Op: OpPS}, *node},
		"key": {func(c *Client) (any, error) { return c.Key(context.Background(), "ssh-ed25519 A", "host") },
			Reply{Node: node}, Request{Op: OpKey, AuthorizedKey: "ssh-ed25519 A", HostKey: "host"}, *node},
		"stop": {func(c *Client) (any, error) { return nil, c.Stop(context.Background()) },
			Reply{}, Request{Op: OpStop}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path, asked := serve(t, tt.reply, nothing)
			got, err := tt.call(dialed(t, path))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.asked, <-asked); diff != "" {
				t.Errorf("request differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARefusalIsTheAgentsSentence(t *testing.T) {
	path, _ := serve(t, Reply{Error: "vm7 is not a VM of node n1"}, nothing)
	_, err := dialed(t, path).Console(context.Background(), 7, false)
	var refused *refusedError
	if !errors.As(err, &refused) || err.Error() != "vm7 is not a VM of node n1" {
		t.Errorf("error = %v", err)
	}
}

// An agent that refuses by credentials answers and closes before it reads anything, and
// maybe before the client sends anything.
func TestARefusalBySight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refused := make(chan struct{})
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			NewConn(raw).WriteJSON(Reply{Error: "you are not in the job"})
			raw.Close()
			refused <- struct{}{}
		}
	}()
	for _, late := range []bool{false, true} {
		c := dialed(t, path)
		if late {
			<-refused
		}
		if _, err := c.PS(t.Context()); err == nil || err.Error() != "you are not in the job" {
			t.Errorf("error = %v (the request is late: %v)", err, late)
		}
		if !late {
			<-refused
		}
	}
}

func TestAnAgentThatGoesIsAnError(t *testing.T) {
	tests := map[string]func(*Client) error{
		"hold": func(c *Client) error { _, err := c.Hold(context.Background()); return err },
		"exec": func(c *Client) error { _, _, err := c.Exec(context.Background(), Request{}); return err },
		"ps":   func(c *Client) error { _, err := c.PS(context.Background()); return err },
	}
	for name, call := range tests {
		t.Run(name+" with an empty reply", func(t *testing.T) {
			path, _ := serve(t, Reply{}, nothing)
			if err := call(dialed(t, path)); err == nil {
				t.Error("no error")
			}
		})
	}
	path := filepath.Join(t.TempDir(), "none.sock")
	if _, err := Dial(context.Background(), path); err == nil || !strings.Contains(err.Error(), "node agent") {
		t.Errorf("error = %v", err)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	path, _ := serve(t, Reply{Node: node}, func(c *Conn) { io.Copy(io.Discard, c) })
	ctx, cancel := context.WithCancelCause(context.Background())
	c := dialed(t, path)
	h, err := c.Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the step ends")
	go cancel(why)
	if err := h.SendMap(ctx, nil); !errors.Is(err, why) {
		t.Errorf("error = %v, want %v", err, why)
	}
}

func TestReadJSONIsBounded(t *testing.T) {
	tests := map[string]struct {
		sent string
		want error
	}{
		"a line that is too long":   {strings.Repeat("x", 5000) + "\n", errLineTooLong},
		"a line without end":        {strings.Repeat("x", 5000), errLineTooLong},
		"the end inside a line":     {`{"op":`, io.ErrUnexpectedEOF},
		"the end between two lines": {"", io.EOF},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			go func() {
				io.WriteString(there, tt.sent)
				there.Close()
			}()
			var r Request
			if err := NewConn(here).ReadJSON(4096, &r); !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestSocketPath(t *testing.T) {
	if got, want := SocketPath("/run/slurmv/n1", 4217, 1), "/run/slurmv/n1/jobs/4217.1/agent.sock"; got != want {
		t.Errorf("path = %s, want %s", got, want)
	}
}

package vmstep

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// pipeHold starts Hold against an agent played by the test.
func pipeHold(t *testing.T, ctx context.Context) (agent *nodeagent.Conn, in, out net.Conn, result chan error) {
	t.Helper()
	path := t.TempDir() + "/agent.sock"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted := make(chan *nodeagent.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c := nodeagent.NewConn(conn)
		var r nodeagent.Request
		c.ReadJSON(nodeagent.MaxRequest, &r)
		n := nodeVMs("n1", 0, 0)
		c.WriteJSON(nodeagent.Reply{Node: &n})
		accepted <- c
	}()
	client, err := nodeagent.Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	holder, err := client.Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	in, stdin := net.Pipe()
	stdout, out := net.Pipe()
	result = make(chan error, 1)
	go func() { result <- Hold(ctx, holder, stdin, stdout) }()
	agent = <-accepted
	t.Cleanup(func() { in.Close(); out.Close(); agent.Close() })
	return agent, in, out, result
}

// nextFrame returns the next message on a stream.
func nextFrame(t *testing.T, r net.Conn) Message {
	t.Helper()
	var found []Message
	f := Frames{Message: func(m Message) { found = append(found, m) }}
	buf := make([]byte, 4096)
	for len(found) == 0 {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		f.Write(buf[:n])
	}
	return found[0]
}

func TestHoldCarriesTheMap(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	agent, in, out, result := pipeHold(t, ctx)
	var announced nodeagent.NodeVMs
	json.Unmarshal(nextFrame(t, out).Body, &announced)
	if diff := cmp.Diff(nodeVMs("n1", 0, 0), announced); diff != "" {
		t.Errorf("announced VMs differ (-want +got):\n%s", diff)
	}
	all := []nodeagent.NodeVMs{nodeVMs("n1", 0, 0), nodeVMs("n2", 1, 1)}
	if err := WriteFrame(in, "all", KindMap, all); err != nil {
		t.Fatal(err)
	}
	var m nodeagent.HoldMessage
	agent.ReadJSON(nodeagent.MaxMap, &m)
	if diff := cmp.Diff(all, m.Map); diff != "" {
		t.Errorf("map at the agent differs (-want +got):\n%s", diff)
	}
	agent.WriteJSON(nodeagent.HoldMessage{Ready: true})
	if got := nextFrame(t, out).Kind; got != KindReady {
		t.Errorf("kind = %s, want ready", got)
	}
	in.Close() // the keeper's end changes nothing
	cancel()
	var ending nodeagent.HoldMessage
	agent.ReadJSON(nodeagent.MaxMap, &ending)
	if !ending.Ending {
		t.Errorf("the agent was told %+v, want ending", ending)
	}
	select {
	case err := <-result:
		t.Fatalf("hold went before the programs had ended: %v", err)
	default:
	}
	agent.WriteJSON(nodeagent.HoldMessage{Ended: true})
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestHoldEndsWithOneSentence(t *testing.T) {
	sendMap := func(agent *nodeagent.Conn, in net.Conn) {
		WriteFrame(in, "all", KindMap, []nodeagent.NodeVMs{})
		var m nodeagent.HoldMessage
		agent.ReadJSON(nodeagent.MaxMap, &m)
	}
	tests := map[string]struct {
		act  func(agent *nodeagent.Conn, in net.Conn)
		want string
	}{
		"when the keeper goes before the map": {func(_ *nodeagent.Conn, in net.Conn) { in.Close() },
			errKeeperGone.Error()},
		"when the agent goes": {func(agent *nodeagent.Conn, in net.Conn) {
			sendMap(agent, in)
			agent.WriteJSON(nodeagent.HoldMessage{Ready: true})
			agent.Close()
		}, "the node agent is gone"},
		"when the agent gives up on the map": {func(agent *nodeagent.Conn, in net.Conn) {
			sendMap(agent, in)
			agent.WriteJSON(nodeagent.HoldMessage{Error: "vm0: the guest is gone"})
		}, "vm0: the guest is gone"},
		"when the agent gives up later": {func(agent *nodeagent.Conn, in net.Conn) {
			sendMap(agent, in)
			agent.WriteJSON(nodeagent.HoldMessage{Ready: true})
			agent.WriteJSON(nodeagent.HoldMessage{Error: "vm0: powered off"})
		}, "vm0: powered off"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent, in, out, result := pipeHold(t, context.Background())
			nextFrame(t, out)
			go tt.act(agent, in)
			m := nextFrame(t, out)
			for m.Kind == KindReady {
				m = nextFrame(t, out)
			}
			var f Failure
			json.Unmarshal(m.Body, &f)
			if m.Kind != KindFailed || !strings.Contains(f.Error, tt.want) {
				t.Errorf("hold said %s %q, want failed with %q", m.Kind, f.Error, tt.want)
			}
			if err := <-result; err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

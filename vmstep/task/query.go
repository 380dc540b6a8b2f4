package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A Query runs in a step that slurmv starts to ask the job's agents. It writes all its
// output in frames, because slurmstepd holds back output without a line end, and because a
// site's TaskProlog may print, too.
type Query struct {
	Agent
	VM     int    // number in the job
	Follow bool   // of a console: show new output, and type standard input
	Port   uint16 // on the VM's loopback
}

// Ask does one operation. It reports an error to slurmv in a message, and not on standard
// error as well, so that users read it once.
func (q *Query) Ask(ctx context.Context, do func(context.Context, *nodeagent.Client) error) error {
	client, err := q.dial(ctx)
	if notUpYet(err) {
		err = errors.New("the VMs are not up yet")
	}
	if err == nil {
		err = do(ctx, client)
	}
	return answer(err)
}

// answer reports an error to slurmv, if there is one.
func answer(err error) error {
	if err != nil {
		return reply(vmstep.KindFailed, vmstep.Failure{Error: err.Error()})
	}
	return nil
}

func queryNode() string { return os.Getenv(slurm.EnvNodeName) }

// nodeRank is the node's position among the nodes of this step. They are in the job's
// order.
func nodeRank() int {
	rank, _ := strconv.Atoi(os.Getenv(slurm.EnvNodeID))
	return rank
}

func reply(kind string, value any) error {
	return vmstep.WriteFrame(os.Stdout, queryNode(), kind, value)
}

// AskPS reports the node's VMs. If the agent does not listen, it reports none: they are not
// up yet.
func (q *Query) AskPS(ctx context.Context) error {
	client, err := q.dial(ctx)
	if notUpYet(err) {
		return reply(vmstep.KindVMs, nodeagent.NodeVMs{Node: queryNode(), Rank: nodeRank()})
	}
	if err != nil {
		return answer(err)
	}
	node, err := client.PS(ctx)
	if err != nil {
		return answer(err)
	}
	return reply(vmstep.KindVMs, node)
}

// Console passes on a VM's console output.
func (q *Query) Console(ctx context.Context, client *nodeagent.Client) error {
	conn, err := client.Console(ctx, q.VM, q.Follow)
	if err != nil {
		return err
	}
	defer conn.Close()
	if q.Follow {
		go func() { _, _ = io.Copy(conn, os.Stdin) }()
	}
	return sendStream(ctx, conn)
}

// Forward connects standard input and output to a port of a VM.
func (q *Query) Forward(ctx context.Context, client *nodeagent.Client) error {
	conn, err := client.Forward(ctx, q.VM, q.Port)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.CloseWrite()
	}()
	return sendStream(ctx, conn)
}

// sendStream passes on the bytes from conn until it ends.
func sendStream(ctx context.Context, conn *nodeagent.Conn) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	buffer := make([]byte, 16<<10)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			if err := reply(vmstep.KindData, buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the connection to the VM broke: %w", err)
		}
	}
}

// Key lets the holder of a key log in to the node's VMs. It reads the keys from standard
// input, because every user can read a command line.
func (q *Query) Key(ctx context.Context, client *nodeagent.Client) error {
	var k sshkey.Announcement
	if err := json.NewDecoder(io.LimitReader(os.Stdin, nodeagent.MaxRequest)).Decode(&k); err != nil {
		return fmt.Errorf("read the keys: %w", err)
	}
	node, err := client.Key(ctx, k.Authorized, k.Host)
	if err != nil {
		return err
	}
	return reply(vmstep.KindVMs, node)
}

// SendMap reads the map of all VMs of the job from standard input and gives it to this
// node's VMs. It does the keeper's work where slurmv launch holds the VMs.
func (q *Query) SendMap(ctx context.Context, client *nodeagent.Client) error {
	var all []nodeagent.NodeVMs
	frames := vmstep.Frames{Message: func(m vmstep.Message) {
		if m.Kind == vmstep.KindMap {
			_ = m.Decode(&all)
		}
	}}
	if _, err := io.Copy(&frames, os.Stdin); err != nil || len(all) == 0 {
		return errors.Join(errors.New("the map of the VMs has not come"), err)
	}
	holder, err := client.Hold(ctx)
	if err != nil {
		return err
	}
	defer holder.Close()
	if err := holder.SendMap(ctx, all); err != nil {
		return err
	}
	return reply(vmstep.KindReady, struct{}{})
}

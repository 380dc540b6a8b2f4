package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/vmstep"
)

// kindData is a message with bytes of a stream: what a program in a VM, or its
// console, has written.
const kindData = "data"

// newQuery is what slurmv runs in a step of a job to ask the job's agents. All
// that comes back is framed: slurmstepd holds back what has no line end, and a
// site's TaskProlog may print, too.
func newQuery() *cobra.Command {
	q := &query{}
	c := &cobra.Command{
		Use:    "query",
		Short:  "Ask the agent of this task's job; slurmv starts it",
		Hidden: true,
	}
	c.PersistentFlags().StringVar(&q.config, "config", config.Path, "read the configuration from `file`")
	c.AddCommand(
		q.command("ps", "Which VMs are there", q.ps),
		q.withVM(q.command("console", "What a VM has printed", q.console), func(c *cobra.Command) {
			c.Flags().BoolVar(&q.follow, "follow", false, "go on, and type standard input")
		}),
		q.withVM(q.command("forward", "Connect to a port of a VM", q.forward), func(c *cobra.Command) {
			c.Flags().Uint16Var(&q.port, "port", 22, "connect to this TCP `port` of the VM's loopback")
		}),
		q.command("map", "Tell all VMs of the job, which come on standard input, to this node's", q.sendMap),
		q.command("key", "Let the holder of a key log in; the keys come on standard input", q.key),
	)
	return c
}

type query struct {
	config string
	vm     int
	follow bool
	port   uint16
}

func (q *query) command(name, short string, do func(context.Context, *nodeagent.Client) error) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return q.run(c.Context(), name, do) },
	}
}

func (q *query) withVM(c *cobra.Command, more func(*cobra.Command)) *cobra.Command {
	c.Flags().IntVar(&q.vm, "vm", 0, "the VM's `number` in the job")
	more(c)
	return c
}

// run does one operation. What goes wrong is told to slurmv in a message, once,
// and not on standard error as well.
func (q *query) run(ctx context.Context, name string, do func(context.Context, *nodeagent.Client) error) error {
	client, err := dialAgent(ctx, q.config)
	if name == "ps" && notUpYet(err) {
		return reply(vmstep.KindVMs, nodeagent.NodeVMs{Node: queryNode(), Rank: nodeRank()})
	}
	if notUpYet(err) {
		err = errors.New("the VMs are not up yet")
	}
	if err == nil {
		err = do(ctx, client)
	}
	if err != nil {
		return reply(vmstep.KindFailed, vmstep.Failure{Error: err.Error()})
	}
	return nil
}

// notUpYet reports that no agent listens: it does so once its VMs are ready.
func notUpYet(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}

func queryNode() string { return os.Getenv("SLURMD_NODENAME") }

// nodeRank is the node's place among those of this step, which are in the order
// of the job's.
func nodeRank() int {
	rank, _ := strconv.Atoi(os.Getenv("SLURM_NODEID"))
	return rank
}

func reply(kind string, value any) error {
	return vmstep.WriteFrame(os.Stdout, queryNode(), kind, value)
}

func (q *query) ps(ctx context.Context, client *nodeagent.Client) error {
	node, err := client.PS(ctx)
	if err != nil {
		return err
	}
	return reply(vmstep.KindVMs, node)
}

func (q *query) console(ctx context.Context, client *nodeagent.Client) error {
	conn, err := client.Console(ctx, q.vm, q.follow)
	if err != nil {
		return err
	}
	defer conn.Close()
	if q.follow {
		go func() { _, _ = io.Copy(conn, os.Stdin) }()
	}
	return sendStream(ctx, conn)
}

func (q *query) forward(ctx context.Context, client *nodeagent.Client) error {
	conn, err := client.Forward(ctx, q.vm, q.port)
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

// sendStream passes on what conn says until it ends.
func sendStream(ctx context.Context, conn *nodeagent.Conn) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	buffer := make([]byte, 16<<10)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			if err := reply(kindData, buffer[:n]); err != nil {
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

// key takes the keys from standard input; they never stand on a command line.
func (q *query) key(ctx context.Context, client *nodeagent.Client) error {
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

// sendMap is the keeper's part where slurmv launch holds the VMs.
func (q *query) sendMap(ctx context.Context, client *nodeagent.Client) error {
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

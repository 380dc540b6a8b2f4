package pmi

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fourVMs describes rank 2 or 3 of four ranks on a node with two VMs.
var fourVMs = Layout{Ranks: 4, VMsPerNode: 2, VM: 1, Distribution: DistBlock}

// A message is one of a conversation: what one side sends, and what each side must receive.
type message struct {
	client, server string // what a side sends; one of the two
	toServer       string // the client's message as the server receives it
	toClient       string // what the client receives
}

func TestRelayConversation(t *testing.T) {
	init1 := message{client: "cmd=init pmi_version=1 pmi_subversion=1\n", toServer: "cmd=init pmi_version=1 pmi_subversion=1\n"}
	init2 := message{client: "cmd=init pmi_version=2 pmi_subversion=0\n", toServer: "cmd=init pmi_version=2 pmi_subversion=0\n"}
	hello1 := message{
		server:   "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
		toClient: "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
	}
	hello2 := message{
		server:   "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n",
		toClient: "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n",
	}
	same := func(client, server string) message { return message{client, server, client, server} }
	two := func(body string) string { return string(frame(pmi2, body)) }

	sharing, otherSharing, thirdSharing := fourVMs, fourVMs, fourVMs
	sharing.Shared, otherSharing.Shared, thirdSharing.Shared = &Shared{}, &Shared{}, &Shared{}

	tests := map[string]struct {
		layout   Layout
		messages []message
	}{
		"PMI-1 passes unchanged": {fourVMs, []message{
			init1, hello1,
			same("cmd=get_maxes\n", ""),
			same("", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
			same("cmd=put kvsname=9.0 key=a value=PMI_process_mapping\n", ""),
			same("", "cmd=put_result rc=0\n"),
			same("cmd=get kvsname=9.0 key=a\n", ""),
			same("", "cmd=get_result rc=0 value=(vector,(0,1,4))\n"),
			same("cmd=finalize\n", ""),
			same("", "cmd=finalize_ack rc=0\n"),
		}},
		"PMI-1 mapping by VM": {fourVMs, []message{
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			{server: "cmd=get_result rc=0 value=(vector,(0,1,4))\n", toClient: "cmd=get_result rc=0 value=(vector,(0,2,2))\n"},
			same("cmd=get kvsname=9.0 key=b\n", ""),
			same("", "cmd=get_result rc=0 value=(vector,(0,1,4))\n"),
		}},
		"PMI-1 without a mapping": {fourVMs, []message{
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			same("", "cmd=get_result rc=1\n"),
		}},
		"PMI-1 mapping that nobody can read": {fourVMs, []message{
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			{server: "cmd=get_result rc=0 value=(matrix)\n", toClient: "cmd=get_result rc=1\n"},
		}},
		"PMI-1 spawn is refused": {fourVMs, []message{
			init1, hello1,
			{client: "mcmd=spawn\ntotspawns=2\nspawnssofar=1\nendcmd\n"},
			{client: "mcmd=spawn\ntotspawns=2\nspawnssofar=2\nendcmd\n", toClient: "cmd=spawn_result rc=1\n"},
		}},
		"PMI-1 mapping by node, for a rank that sees the memory of other VMs": {sharing, []message{
			{client: "cmd=slurmv-shm ready=1\n"},
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			same("", "cmd=get_result rc=0 value=(vector,(0,1,4))\n"),
			{client: "cmd=slurmv-shm peer=UCX\n"},
			same("cmd=finalize\n", ""),
		}},
		"PMI-1 mapping by VM, for a rank that could see it": {otherSharing, []message{
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			{server: "cmd=get_result rc=0 value=(vector,(0,1,4))\n", toClient: "cmd=get_result rc=0 value=(vector,(0,2,2))\n"},
		}},
		"PMI-2 mapping and attributes by node": {thirdSharing, []message{
			{client: "cmd=slurmv-shm ready=1\n"},
			init2, hello2,
			same(two("cmd=info-putnodeattr;key=shm;value=x;"), ""),
			{client: two("cmd=slurmv-shm;peer=UCX;")},
			same(two("cmd=info-getjobattr;key=PMI_process_mapping;"), ""),
			same("", two("cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,4));")),
		}},
		"the library's words where no memory is": {fourVMs, []message{
			{client: "cmd=slurmv-shm ready=1\n"},
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			{server: "cmd=get_result rc=0 value=(vector,(0,1,4))\n", toClient: "cmd=get_result rc=0 value=(vector,(0,2,2))\n"},
		}},
		"PMI-2 mapping by VM": {fourVMs, []message{
			init2, hello2,
			same("    23cmd=fullinit;pmirank=2;", ""),
			same("", two("cmd=fullinit-response;rc=0;pmi-version=2;")),
			same(two("cmd=info-getjobattr;key=PMI_process_mapping;"), ""),
			{
				server:   two("cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,4));"),
				toClient: two("cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,2,2));"),
			},
			same(two("cmd=info-getjobattr;key=universeSize;"), ""),
			same("", two("cmd=info-getjobattr-response;rc=0;found=TRUE;value=4;")),
		}},
		"PMI-2 digits follow the length": {Layout{Ranks: 30, VMsPerNode: 2}, []message{
			init2, hello2,
			same(two("cmd=info-getjobattr;key=PMI_process_mapping;"), ""),
			{
				server:   two("cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,10,3));"),
				toClient: string(frame(pmi2, "cmd=info-getjobattr-response;rc=0;found=TRUE;value="+Mapping{{0, 10, 3}}.ToVMs(30, 2, DistBlock).String()+";")),
			},
		}},
		"PMI-2 attributes of a node become the VM's": {fourVMs, []message{
			init2, hello2,
			{client: two("cmd=info-putnodeattr;key=shm;value=x;"), toServer: two("cmd=info-putnodeattr;key=vm1-shm;value=x;")},
			{client: two("cmd=info-getnodeattr;key=shm;wait=TRUE;"), toServer: two("cmd=info-getnodeattr;key=vm1-shm;wait=TRUE;")},
		}},
		"PMI-2 attributes stay the node's with one VM": {Layout{Ranks: 2, VMsPerNode: 1}, []message{
			init2, hello2,
			same(two("cmd=info-putnodeattr;key=shm;value=x;"), ""),
		}},
		"PMI-2 spawn is refused": {fourVMs, []message{
			init2, hello2,
			{client: two("cmd=spawn;ncmds=1;"), toClient: two("cmd=spawn-response;rc=1;errmsg=spawning is not available in VMs;")},
		}},
		"a long mapping that wraps": {Layout{Ranks: 40 * 120, VMsPerNode: 1}, []message{
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			{
				server:   "cmd=get_result rc=0 value=(vector" + strings.Repeat(",(0,40,1)", 120) + ")\n",
				toClient: "cmd=get_result rc=0 value=(vector,(0,40,1))\n",
			},
		}},
		"a mapping too long for MPI": {Layout{Ranks: 150 * 151 / 2, VMsPerNode: 1}, []message{
			init1, hello1,
			same("cmd=get kvsname=9.0 key=PMI_process_mapping\n", ""),
			{
				server:   "cmd=get_result rc=0 value=" + triangle(150).String() + "\n",
				toClient: "cmd=get_result rc=1\n",
			},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server, client := startRelay(t, tt.layout)
			for _, turn := range tt.messages {
				client.say(turn.client)
				server.say(turn.server)
				if turn.toServer != "" {
					server.expect(turn.toServer)
				}
				if turn.toClient != "" {
					client.expect(turn.toClient)
				}
			}
		})
	}
}

// triangle returns an irregular mapping: node i has i+1 ranks.
func triangle(nodes int) Mapping {
	var m Mapping
	for i := range nodes {
		m = append(m, Block{i, 1, i + 1})
	}
	return m
}

// A side is one end of a relayed conversation. Its pipe returns one Write per Read, so
// expect sees whether a message was written at once.
type side struct {
	t    *testing.T
	conn net.Conn
}

func (s side) say(text string) {
	s.t.Helper()
	if text == "" {
		return
	}
	// Byte by byte: the relay must put messages together.
	for i := range len(text) {
		if _, err := s.conn.Write([]byte{text[i]}); err != nil {
			s.t.Fatalf("say %q: %v", text, err)
		}
	}
}

func (s side) expect(want string) {
	s.t.Helper()
	got := make([]byte, maxMessage)
	n, err := s.conn.Read(got)
	if err != nil {
		s.t.Fatalf("wait for %q: %v", want, err)
	}
	if diff := cmp.Diff(want, string(got[:n])); diff != "" {
		s.t.Fatalf("message differs (-want +got):\n%s", diff)
	}
}

func startRelay(t *testing.T, layout Layout) (server, client side) {
	serverFar, serverNear := net.Pipe()
	clientFar, clientNear := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- Relay(serverNear, clientNear, layout) }()
	t.Cleanup(func() {
		_ = clientFar.Close()
		if t.Failed() {
			_ = serverFar.Close() // the relay may wait for us to read
		}
		if err := <-done; err != nil && !t.Failed() {
			t.Errorf("relay at the end of the program: %v", err)
		}
		_ = serverFar.Close()
	})
	return side{t, serverFar}, side{t, clientFar}
}

// A program is a rank from init to finalize. With a PMIx server, it is one while it is connected to that.
func TestMembership(t *testing.T) {
	two := func(body string) string { return string(frame(pmi2, body)) }
	const init1, init2, world = "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=init pmi_version=2 pmi_subversion=0\n", "cmd=abort exitcode=1\n"
	tests := map[string]struct {
		pmix           bool
		says           []string
		joined, within bool
		abort          string
	}{
		"before it speaks":                 {},
		"PMI-1":                            {says: []string{init1, "cmd=get_maxes\n"}, joined: true, within: true, abort: world},
		"PMI-1, finalized":                 {says: []string{init1, "cmd=finalize\n"}, joined: true},
		"PMI-1, a second program":          {says: []string{init1, "cmd=finalize\n", init1}, joined: true, within: true, abort: world},
		"PMI-2":                            {says: []string{init2, two("cmd=fullinit;pmirank=2;")}, joined: true, within: true, abort: two("cmd=abort;isworld=TRUE;msg=a rank has ended without MPI_Finalize;")},
		"PMI-2, finalized":                 {says: []string{init2, two("cmd=finalize;")}, joined: true},
		"a value with the word finalize":   {says: []string{init2, two("cmd=kvs-put;key=a;value=cmd=finalize;")}, joined: true, within: true, abort: two("cmd=abort;isworld=TRUE;msg=a rank has ended without MPI_Finalize;")},
		"a PMIx server alone":              {pmix: true, says: []string{init1}},
		"a PMIx server and its program":    {pmix: true, says: []string{init1, "cmd=slurmv-pmix joined=1\n"}, joined: true, within: true, abort: world},
		"a PMIx server, after the program": {pmix: true, says: []string{init1, "cmd=slurmv-pmix joined=1\n", "cmd=slurmv-pmix joined=0\n"}, joined: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := &Membership{}
			c := &conversation{layout: Layout{Ranks: 4, VMsPerNode: 1, PMIx: tt.pmix, Member: m}}
			for _, message := range tt.says {
				if _, _, err := c.request([]byte(message)); err != nil {
					t.Fatal(err)
				}
			}
			if m.Joined() != tt.joined || m.Within() != tt.within {
				t.Errorf("joined %v, within %v, want %v, %v", m.Joined(), m.Within(), tt.joined, tt.within)
			}
			if got := string(m.Abort()); tt.within && got != tt.abort {
				t.Errorf("abort is %q, want %q", got, tt.abort)
			}
		})
	}
}

// A program that must have the memory does not begin without the library.
func TestInitNeedsTheLibraryIfItMust(t *testing.T) {
	const hello, ready = "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=slurmv-shm ready=1\n"
	tests := map[string]struct {
		shared *Shared
		says   []string
		want   error
	}{
		"it must and has it":     {&Shared{Must: true}, []string{ready, hello}, nil},
		"it must and has it not": {&Shared{Must: true}, []string{hello}, ErrNotShared},
		"it may":                 {&Shared{}, []string{hello}, nil},
		"there is none":          {nil, []string{hello}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var toServer strings.Builder
			client := &struct {
				io.Reader
				io.Writer
			}{strings.NewReader(strings.Join(tt.says, "")), io.Discard}
			server := &struct {
				io.Reader
				io.Writer
			}{silence{}, &toServer}
			layout := fourVMs
			layout.Shared = tt.shared
			if err := Relay(server, client, layout); !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
			if began := toServer.Len() > 0; began != (tt.want == nil) {
				t.Errorf("slurmstepd gets %q", toServer.String())
			}
			if tt.shared != nil && tt.shared.Refused() != (tt.want != nil) {
				t.Errorf("refused: %v", tt.shared.Refused())
			}
		})
	}
}

// silence is a server that never answers.
type silence struct{}

func (silence) Read([]byte) (int, error) { select {} }

func TestRelayEndsWithTheServer(t *testing.T) {
	serverFar, serverNear := net.Pipe()
	_, clientNear := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- Relay(serverNear, clientNear, fourVMs) }()
	_ = serverFar.Close()
	if err := <-done; err != nil {
		t.Errorf("relay at the end of the server: %v", err)
	}
}

func TestRelayNamesACutMessage(t *testing.T) {
	_, serverNear := net.Pipe()
	client := struct {
		io.Reader
		io.Writer
	}{strings.NewReader("cmd=in"), io.Discard}
	err := Relay(serverNear, client, fourVMs)
	if err == nil || !strings.Contains(err.Error(), "relay PMI from the program: unexpected EOF") {
		t.Errorf("error = %v", err)
	}
}

func TestRelayRefusesAnImpossibleJob(t *testing.T) {
	if err := Relay(nil, nil, Layout{Ranks: 4}); err == nil {
		t.Error("a node without VMs was accepted")
	}
}

func TestClientThatNeverListens(t *testing.T) {
	c := &conversation{layout: fourVMs}
	_, _, _ = c.request([]byte("cmd=init pmi_version=1 pmi_subversion=1\n"))
	var err error
	for range maxUnanswered + 1 {
		_, _, err = c.request([]byte("cmd=get key=a\n"))
	}
	if err == nil {
		t.Error("unanswered requests are remembered without end")
	}
}

// Neither side can make the relay panic, and every message stays a message.
func FuzzConversation(f *testing.F) {
	f.Add([]byte("cmd=init pmi_version=1 pmi_subversion=1\n"), []byte("cmd=get key=PMI_process_mapping\n"), []byte("cmd=get_result rc=0 value=(vector,(0,1,4))\n"))
	f.Add([]byte("cmd=init pmi_version=2 pmi_subversion=0\n"), []byte("44    cmd=info-getjobattr;key=PMI_process_mapping;"), []byte("4     cmd="))
	f.Add([]byte("cmd=init pmi_version=2 pmi_subversion=0\n"), []byte("34    cmd=info-getnodeattr;key=a;wait=1;"), []byte("mcmd=spawn\nendcmd\n"))
	f.Fuzz(func(t *testing.T, hello, request, answer []byte) {
		c := &conversation{layout: fourVMs}
		if _, _, err := c.request(hello); err != nil {
			t.Fatal(err)
		}
		d := c.framing()
		msg, err := newReader(bytes.NewReader(request)).Next(d)
		if err != nil {
			return
		}
		forward, reply, err := c.request(msg)
		if err != nil {
			t.Fatal(err)
		}
		if msg, err := newReader(bytes.NewReader(answer)).Next(d); err == nil {
			wholeMessage(t, d, c.answer(msg))
		}
		wholeMessage(t, d, forward)
		wholeMessage(t, d, reply)
	})
}

func wholeMessage(t *testing.T, d dialect, msg []byte) {
	t.Helper()
	if msg == nil {
		return
	}
	r := newReader(bytes.NewReader(msg))
	if got, err := r.Next(d); err != nil || !bytes.Equal(got, msg) {
		t.Fatalf("%q reads back as %q, %v", msg, got, err)
	}
}

func TestSharedTellsEachTransportOnce(t *testing.T) {
	var met []string
	s := &Shared{Met: func(transport string) { met = append(met, transport) }}
	for _, line := range []string{"cmd=slurmv-shm ready=1\n", "cmd=slurmv-shm peer=UCX\n", "cmd=slurmv-shm peer=UCX\n", "cmd=slurmv-shm peer=MPICH\n"} {
		s.hear(pmi1, []byte(line))
	}
	if want := []string{"UCX", "MPICH"}; !s.Ready() || !slices.Equal(met, want) || !slices.Equal(s.Transports(), want) {
		t.Errorf("ready %v, met %q, transports %q", s.Ready(), met, s.Transports())
	}
}

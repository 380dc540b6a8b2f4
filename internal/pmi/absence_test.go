package pmi

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// absentRank is a rank whose relay tells of absent tasks, and what it misses.
func absentRank(wait time.Duration) (Layout, chan string) {
	missed := make(chan string, 1)
	layout := fourVMs
	layout.Member = &Membership{}
	layout.Absence = &Absence{Task: "2@n1", Wait: wait, Misses: func(task string) { missed <- task }}
	return layout, missed
}

// The relay of a program without MPI says so at the program's end, once for its node, in the dialect of its step.
func TestATaskWithoutMPITellsTheOthers(t *testing.T) {
	const hello, welcome = "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
	publish := message{toServer: "cmd=publish_name service=slurmv-absent port=2@n1\n", server: "cmd=publish_result info=ok\n"}
	ofProgram := []message{{client: hello, server: welcome}}
	tests := map[string]struct {
		pmix, second, only bool
		says               []message // of the program
		tells              []message // of the relay
	}{
		"the first of its node": {tells: []message{{toServer: hello, server: welcome}, publish}},
		"its node has ranks with PMI-2": {tells: []message{
			{toServer: hello, server: "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n"},
			{toServer: string(frame(pmi2, "cmd=name-publish;name=slurmv-absent;port=2@n1;")), server: string(frame(pmi2, "cmd=name-publish-response;rc=0;"))},
		}},
		"with a PMIx server that has spoken for it": {pmix: true, says: ofProgram, tells: []message{publish}},

		"the second of its node": {second: true},
		"it is the only task":    {only: true},
		"it was a rank":          {says: ofProgram},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			layout, _ := absentRank(time.Hour)
			layout.PMIx, layout.Absence.First = tt.pmix, func() bool { return !tt.second }
			if tt.only {
				layout.Ranks = 1
			}
			server, client := startRelay(t, layout)
			synctest.Wait() // the relay begins
			for _, turn := range tt.says {
				client.say(turn.client)
				server.expect(turn.client)
				server.say(turn.server)
				client.expect(turn.server)
			}
			told := make(chan struct{})
			go func() {
				defer close(told)
				layout.Absence.Tell()
			}()
			for _, turn := range tt.tells {
				server.expect(turn.toServer)
				server.say(turn.server)
			}
			<-told
			server.isSilent()
		})
	}
}

// inBubble runs a test with a time of its own, in which what takes no time has happened before a deadline.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// isSilent checks that the relay says nothing more.
func (s side) isSilent() {
	s.t.Helper()
	_ = s.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	got := make([]byte, maxMessage)
	if n, err := s.conn.Read(got); n > 0 || errors.Is(err, io.EOF) {
		s.t.Errorf("the relay says %q, %v", got[:n], err)
	}
}

// A rank that waits in a barrier asks for absent tasks, until there is one or the barrier opens. Its program hears nothing of it.
func TestARankThatWaitsAsksForAbsentTasks(t *testing.T) {
	two := func(body string) string { return string(frame(pmi2, body)) }
	tests := map[string]struct {
		pmix                                         bool
		hello, welcome, enters, asks, no, yes, opens string
	}{
		"PMI-1": {
			false, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init rc=0\n", "cmd=barrier_in\n", "cmd=lookup_name service=slurmv-absent\n",
			"cmd=lookup_result info=fail\n", "cmd=lookup_result info=ok port=3@n2\n", "cmd=barrier_out rc=0\n",
		},
		"in MPI_Init, with a PMIx server": {
			true, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init rc=0\n", "cmd=slurmv-pmix joined=1\n", "cmd=lookup_name service=slurmv-absent\n",
			"cmd=lookup_result info=fail\n", "cmd=lookup_result info=ok port=3@n2\n", "cmd=barrier_out rc=0\n",
		},
		"PMI-2": {
			false, "cmd=init pmi_version=2 pmi_subversion=0\n", "cmd=response_to_init rc=0\n", two("cmd=kvs-fence;"), two("cmd=name-lookup;name=slurmv-absent;"),
			two("cmd=name-lookup-response;rc=1;"), two("cmd=name-lookup-response;rc=0;value=3@n2;"), two("cmd=kvs-fence-response;rc=0;"),
		},
	}
	for name, tt := range tests {
		for _, absent := range []bool{true, false} {
			inBubble(t, name+map[bool]string{true: ", one is absent", false: ", all come"}[absent], func(t *testing.T) {
				layout, missed := absentRank(10 * time.Millisecond)
				layout.PMIx = tt.pmix
				server, client := startRelay(t, layout)
				client.say(tt.hello)
				server.expect(tt.hello)
				server.say(tt.welcome)
				client.expect(tt.welcome)
				client.say(tt.enters)
				if !tt.pmix {
					server.expect(tt.enters)
				}
				server.expect(tt.asks)
				server.say(tt.no)
				server.expect(tt.asks)
				if absent {
					server.say(tt.yes)
					if task := <-missed; task != "3@n2" {
						t.Errorf("it misses %q", task)
					}
					return
				}
				server.say(tt.no + tt.opens)
				client.expect(tt.opens)
				server.isSilent()
			})
		}
	}
}

// slurmstepd takes what it reads at once as one message: the program's next one comes after the answer to the relay's question.
func TestAProgramsMessageWaitsForTheRelaysQuestion(t *testing.T) {
	synctest.Test(t, programAndRelaySpeak)
}

func programAndRelaySpeak(t *testing.T) {
	layout, _ := absentRank(time.Millisecond)
	server, client := startRelay(t, layout)
	const hello, get = "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=get key=a\n"
	client.say(hello)
	server.expect(hello)
	client.say("cmd=barrier_in\n")
	server.expect("cmd=barrier_in\n")
	server.expect("cmd=lookup_name service=slurmv-absent\n")
	server.say("cmd=barrier_out rc=0\n")
	client.expect("cmd=barrier_out rc=0\n")
	client.say(get)
	server.isSilent()
	_ = server.conn.SetReadDeadline(time.Time{})
	server.say("cmd=lookup_result info=fail\n")
	server.expect(get)
}

func TestQuestionsOfManyRanksAreFew(t *testing.T) {
	for ranks, most := range map[int]float64{64: 2, 1000: 7, 65536: 52} {
		perSecond := 0.0
		for rank := range ranks {
			perSecond += 1 / AbsenceWait(rank).Seconds()
		}
		if perSecond > most || AbsenceWait(0) != 10*time.Second {
			t.Errorf("%d ranks ask %.1f times a second, want at most %v; rank 0 every %v", ranks, perSecond, most, AbsenceWait(0))
		}
	}
}

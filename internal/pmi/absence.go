package pmi

import (
	"bytes"
	"math"
	"strings"
	"sync/atomic"
	"time"
)

// An Absence is what the relays of a run tell each other about tasks that have ended without MPI_Init. A rank waits for
// them in its first barrier for ever: Slurm's mpi/pmi2 counts the tasks that have come, and does nothing when one ends.
//
// The relay of such a task publishes a name by Slurm's name service, which srun keeps for the run. The relay of a rank
// looks the name up if the rank has waited for long. A run in which nobody waits costs srun nothing but one request from
// each node whose tasks have no MPI.
type Absence struct {
	Task   string            // of the relay, without spaces and semicolons, such as 3@n2
	Wait   time.Duration     // between two questions of a rank that waits; see [AbsenceWait]
	Misses func(task string) // the rank misses the task, which has ended; called once
	First  func() bool       // this is the first task of its node to tell of its end

	talk atomic.Pointer[conversation]
}

// AbsenceWait returns how long a rank waits between two questions. Rank 0 asks every 10 s, and the others less often, so
// that srun gets 6 questions a second from 1,000 ranks and 51 from 65,536.
func AbsenceWait(rank int) time.Duration {
	return time.Duration(10 * math.Sqrt(float64(rank+1)) * float64(time.Second))
}

const (
	// absent is the name of the service.
	absent = "slurmv-absent"

	// initAnswer is the command that answers init.
	initAnswer = "response_to_init"

	// answerPatience bounds how long the answer to a question of the relay's own may take.
	answerPatience = 2 * time.Second
)

// A question is one of the relay's own. The program asks nothing at the same time: it has ended, or waits in a barrier.
type question struct {
	answered string // the command of the answer
	answer   chan []byte
}

// send passes a message on to the server. It waits until the answer to a question of the relay's own has come: the server
// would read both messages at once, and lose the second.
func (c *conversation) send(msg []byte) error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return writeMessage(c.server, msg)
}

// ask sends a question of the relay's own and returns the answer, or nil if there is none. The body has no length. The
// caller has the turn.
func (c *conversation) ask(d dialect, body, answered string) []byte {
	q := &question{answered, make(chan []byte, 1)}
	c.mu.Lock()
	c.own = q
	c.mu.Unlock()
	if err := writeMessage(c.server, frame(d, body)); err != nil {
		return nil
	}
	select {
	case answer := <-q.answer:
		return answer
	case <-time.After(answerPatience):
		return nil
	}
}

// isOwn takes a server's message if it is the answer to a question of the relay's own.
func (c *conversation) isOwn(d dialect, msg []byte) bool {
	if bytes.HasPrefix(msg, []byte("cmd=")) { // the answer to init is a line in both dialects
		d = pmi1
	}
	cmd, _ := field(d, msg, "cmd")
	if c.own == nil || c.own.answered != cmd {
		return false
	}
	if cmd == initAnswer { // slurmstepd has one dialect for all tasks of the step: that of the first
		version, _ := field(pmi1, msg, "pmi_version")
		c.dialect = dialectOf(version)
	}
	c.own.answer <- bytes.Clone(msg)
	c.own = nil
	return true
}

// Tell says that the program of this relay has ended, if it was no rank. The descriptor of [Relay] is still open.
func (a *Absence) Tell() {
	if a == nil {
		return
	}
	talk := a.talk.Load()
	if talk == nil || talk.layout.Ranks < 2 || talk.layout.Member.Joined() || !a.First() {
		return
	}
	talk.turn <- struct{}{}
	defer func() { <-talk.turn }()
	if talk.spoken() == 0 { // with PMIx, slurmv-pmix has spoken for the program
		talk.ask(pmi1, "cmd=init pmi_version=1 pmi_subversion=1\n", initAnswer)
	}
	if task := a.Task; talk.spoken() == pmi2 {
		talk.ask(pmi2, "cmd=name-publish;name="+absent+";port="+task+";", "name-publish-response")
	} else {
		talk.ask(pmi1, "cmd=publish_name service="+absent+" port="+task+"\n", "publish_result")
	}
}

// spoken is the dialect of the conversation; 0 if nobody has said a word.
func (c *conversation) spoken() dialect {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialect
}

// enter begins to ask for absent tasks, as long as the program waits in a barrier, or in MPI_Init for one that its PMIx
// server enters for it.
func (c *conversation) enter() {
	if c.layout.Absence != nil && c.layout.Ranks > 1 {
		c.leave()
		c.waiting = time.AfterFunc(c.layout.Absence.Wait, c.lookUp)
	}
}

// leave ends that: the barrier has opened, or the conversation has ended.
func (c *conversation) leave() {
	if c.waiting != nil {
		c.waiting.Stop()
		c.waiting = nil
	}
}

// end ends the questions with the conversation. It waits for the last answer, so that an abort that follows is alone.
func (c *conversation) end() {
	c.mu.Lock()
	c.leave()
	c.mu.Unlock()
	c.turn <- struct{}{}
	<-c.turn
}

// waits reports whether the program is in a barrier.
func (c *conversation) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting != nil
}

// lookUp asks for an absent task, and comes again if there is none.
func (c *conversation) lookUp() {
	task, found := c.absentTask()
	c.mu.Lock()
	waits := c.waiting != nil
	if waits && !found {
		c.waiting.Reset(c.layout.Absence.Wait)
	}
	c.mu.Unlock()
	if waits && found {
		c.layout.Absence.Misses(strings.TrimSpace(task))
	}
}

func (c *conversation) absentTask() (task string, found bool) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	switch {
	case !c.waits():
		return "", false
	case c.spoken() == pmi2:
		return field(pmi2, c.ask(pmi2, "cmd=name-lookup;name="+absent+";", "name-lookup-response"), "value")
	}
	return field(pmi1, c.ask(pmi1, "cmd=lookup_name service="+absent+"\n", "lookup_result"), "port")
}

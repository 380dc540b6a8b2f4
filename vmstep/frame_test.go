package vmstep

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// collect feeds a stream in pieces of n bytes and returns what came out.
func collect(stream string, n int) (messages []string, other []string) {
	f := Frames{
		Message: func(m Message) { messages = append(messages, m.Node+" "+m.Kind+" "+string(m.Body)) },
		Other:   func(line string) { other = append(other, line) },
	}
	for len(stream) > 0 {
		k := min(n, len(stream))
		f.Write([]byte(stream[:k]))
		stream = stream[k:]
	}
	f.Close()
	return messages, other
}

func frame(t *testing.T, node, kind string, value any) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteFrame(&b, node, kind, value); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// interleave deals out the lines of several streams in turn, as srun may.
func interleave(streams ...string) string {
	var split [][]string
	for _, s := range streams {
		split = append(split, strings.SplitAfter(s, "\n"))
	}
	var b strings.Builder
	for i := 0; ; i++ {
		any := false
		for _, lines := range split {
			if i < len(lines) {
				b.WriteString(lines[i])
				any = true
			}
		}
		if !any {
			return b.String()
		}
	}
}

// incompressible is a text of n letters of which no two parts are alike.
func incompressible(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", sha256.Sum256([]byte{byte(i)}))
	}
	return b.String()[:n]
}

func TestALongMessageIsCompressed(t *testing.T) {
	long := strings.Repeat("x", 100*chunk)
	stream := frame(t, "n1", "vms", long)
	if len(stream) > 2*chunk {
		t.Errorf("the message takes %d bytes", len(stream))
	}
	messages, _ := collect(stream, 1024)
	if diff := cmp.Diff([]string{`n1 vms "` + long + `"`}, messages); diff != "" {
		t.Errorf("messages differ (-want +got):\n%s", diff)
	}
}

func TestMessagesThatCannotBeInflatedAreLost(t *testing.T) {
	for name, body := range map[string][]byte{
		"not deflated":     []byte("x is not zlib's"),
		"cut off":          deflate([]byte(incompressible(500)))[:100],
		"far too much":     deflate(make([]byte, maxBody+1)),
		"nothing in there": []byte("x"),
	} {
		f := Frames{Message: func(m Message) { t.Errorf("%s: message of %d bytes", name, len(m.Body)) }}
		f.give(messageID{node: "n1", kind: "vms"}, body)
	}
}

func TestFrames(t *testing.T) {
	long := incompressible(5000)
	one, two := frame(t, "n1", "vms", "a"), frame(t, "n2", "vms", "b")
	n1, n2 := frame(t, "n1", "vms", long), frame(t, "n2", "vms", long)
	torn := strings.SplitAfter(n1, "\n")
	tests := map[string]struct {
		stream   string
		messages []string
		other    []string
	}{
		"one message":             {stream: one, messages: []string{`n1 vms "a"`}},
		"two nodes":               {stream: one + two, messages: []string{`n1 vms "a"`, `n2 vms "b"`}},
		"parts mixed by srun":     {stream: interleave(n1, n2), messages: []string{`n1 vms "` + long + `"`, `n2 vms "` + long + `"`}},
		"other lines are other's": {stream: "hello\n" + one + "\nlast", messages: []string{`n1 vms "a"`}, other: []string{"hello", "", "last"}},
		"a prefix of Slurm's log": {stream: "slurmstepd-n1: " + one, messages: []string{`n1 vms "a"`}},
		"a carriage return":       {stream: strings.ReplaceAll(one, "\n", "\r\n"), messages: []string{`n1 vms "a"`}},
		"a lost part loses only its message": {
			stream: torn[0] + torn[2] + torn[3] + one, messages: []string{`n1 vms "a"`}},
		"a lost beginning":   {stream: strings.Join(torn[1:], "") + one, messages: []string{`n1 vms "a"`}},
		"not quite a frame":  {stream: "@slurmv1 n1 vms 1 2/1 e30=\n", other: []string{"@slurmv1 n1 vms 1 2/1 e30="}},
		"base64 of too much": {stream: "@slurmv1 n1 vms 1 1/1 " + strings.Repeat("AAAA", 215) + "\n", other: []string{"@slurmv1 n1 vms 1 1/1 " + strings.Repeat("AAAA", 215)}},
		"a line without end": {stream: strings.Repeat("y", 2*maxLine), other: []string{strings.Repeat("y", maxLine), strings.Repeat("y", maxLine)}},
	}
	for name, tt := range tests {
		for _, pieces := range []int{1, 7, 1024, 1 << 20} {
			t.Run(fmt.Sprintf("%s in pieces of %d", name, pieces), func(t *testing.T) {
				messages, other := collect(tt.stream, pieces)
				if diff := cmp.Diff(tt.messages, messages); diff != "" {
					t.Errorf("messages differ (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.other, other); diff != "" {
					t.Errorf("other lines differ (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestFrameLinesAreShortEnoughForSrun(t *testing.T) {
	stream := frame(t, strings.Repeat("n", maxNode), "progress", incompressible(5000))
	for line := range strings.Lines(stream) {
		if len(line) >= 1000 {
			t.Errorf("a line has %d bytes; srun cuts at 1024", len(line))
		}
	}
}

func TestOpenMessagesAreBounded(t *testing.T) {
	f := Frames{Message: func(Message) {}}
	for i := range maxOpen + 10 {
		fmt.Fprintf(&f, "@slurmv1 n%d vms 1 1/2 e30=\n", i)
	}
	if len(f.open) > maxOpen || len(f.order) != len(f.open) {
		t.Errorf("%d messages are open (%d in order), want at most %d", len(f.open), len(f.order), maxOpen)
	}
}

// FuzzFrames: whatever a stream holds, the same messages come out however it is
// cut, and a good message behind any line end arrives.
func FuzzFrames(f *testing.F) {
	f.Add("@slurmv1 n1 vms 1 1/2 e30=\n@slurmv1 n1 vms 1 2/2 e30=\n", uint(3))
	f.Add("slurmstepd: @slurmv1 n1 x 1 1/1 !\n", uint(1))
	var good bytes.Buffer
	WriteFrame(&good, "good", "vms", 1)
	f.Fuzz(func(t *testing.T, noise string, n uint) {
		stream := noise + "\n" + good.String()
		whole, otherWhole := collect(stream, len(stream))
		cut, otherCut := collect(stream, int(n%64)+1)
		if diff := cmp.Diff([][]string{whole, otherWhole}, [][]string{cut, otherCut}); diff != "" {
			t.Errorf("cutting changed the outcome:\n%s", diff)
		}
		if len(whole) == 0 || whole[len(whole)-1] != "good vms 1" {
			t.Errorf("the good message was lost among %q", whole)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteFrameTellsWhatFailed(t *testing.T) {
	err := WriteFrame(brokenWriter{}, "n1", "vms", 1)
	if err == nil || !strings.Contains(err.Error(), "vms of node n1") {
		t.Errorf("error = %v, want one that names the message", err)
	}
}

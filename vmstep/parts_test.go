package vmstep

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A message that has lost a part is no message, even if the rest looks like one. The
// checksum of a compressed message would show the loss, but short messages have none.
func TestALostPartLosesItsMessage(t *testing.T) {
	line := func(number, total int, text string) string {
		return fmt.Sprintf("@slurmv1 n1 vms 7 %d/%d %s\n", number, total, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	tests := map[string]struct {
		stream string
		want   []string
	}{
		"all":                   {line(1, 3, "[1") + line(2, 3, ",2") + line(3, 3, ",3]"), []string{"n1 vms [1,2,3]"}},
		"one is lost":           {line(1, 3, "[1") + line(3, 3, ",3]"), nil},
		"of another's length":   {line(1, 3, "[1") + line(2, 2, ",2]"), nil},
		"one comes twice":       {line(1, 3, "[1") + line(1, 3, "[1") + line(2, 3, ",2") + line(3, 3, ",3]"), nil},
		"one after its message": {line(1, 1, "[1]") + line(2, 3, ",2]"), []string{"n1 vms [1]"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, _ := collect(tt.stream, 100)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("messages differ (-want +got):\n%s", diff)
			}
		})
	}
}

// deflatedZeros returns messages of maxBody zeros each, deflated, as one without an end.
func deflatedZeros(t *testing.T, messages int) []byte {
	t.Helper()
	var one bytes.Buffer
	w, err := flate.NewWriter(&one, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(make([]byte, maxBody))
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	return append([]byte{deflated, 0x01}, bytes.Repeat(one.Bytes(), messages)...)
}

// A message that would become too much is given up before it has.
func TestAMessageThatBecomesTooMuch(t *testing.T) {
	bomb := deflatedZeros(t, 13)
	f := Frames{Message: func(m Message) { t.Errorf("message of %d bytes", len(m.Body)) }}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f.give(messageID{node: "n1", kind: "vms"}, bomb)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 10*maxBody {
		t.Errorf("it took %d MiB, and a message may have %d", took>>20, maxBody>>20)
	}
}

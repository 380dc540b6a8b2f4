package journal

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// If the disk does not take a record, the call fails and the journal takes no more
// records: the caller must not go on as if the record were safe. /dev/null accepts every
// write, and refuses to be synced.
func TestRecordsAreOnDisk(t *testing.T) {
	j := create(t, t.TempDir())
	if err := j.Intend("tap", "one", nil); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	disk := j.file
	j.file = null
	for _, name := range []string{"two", "three"} {
		if err := j.Intend("tap", name, nil); err == nil || !strings.Contains(err.Error(), "to disk") {
			t.Errorf("intend %s, which the disk does not take: %v", name, err)
		}
	}
	j.file = disk
}

// Two records, of which the power cut takes the first: neither was on disk if no fsync came between.
func TestRecordsSayWhatWasOnDisk(t *testing.T) {
	for _, synced := range []bool{false, true} {
		state := t.TempDir()
		j := create(t, state)
		before := j.c.size
		end, err := j.write(entry{Op: opIntend, Kind: "tap", Name: "one"})
		if err == nil && synced {
			err = j.sync(end)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.write(entry{Op: opIntend, Kind: "tap", Name: "two"}); err != nil {
			t.Fatal(err)
		}
		if _, err := j.file.WriteAt(make([]byte, end-before-1), before); err != nil {
			t.Fatal(err)
		}
		file, err := Read(state, job)
		var corrupt *corruptError
		if got := errors.As(err, &corrupt); got != synced || len(file.Held) != 0 {
			t.Errorf("fsync between the records: %v; Read = %v, %v", synced, file.Held, err)
		}
	}
}

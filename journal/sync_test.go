package journal

import (
	"os"
	"strings"
	"testing"
)

// A record that the disk does not take is an error, and the end of the journal: whoever
// has written it must not go on as if it were safe. /dev/null takes every write, and
// refuses to be synced.
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

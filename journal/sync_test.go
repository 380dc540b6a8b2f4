package journal

import (
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

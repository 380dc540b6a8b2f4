package process_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/process"
)

func TestParseStatus(t *testing.T) {
	const status = "Name:\tUid:\nUmask:\t0022\nUid:\t0\t1000\t2\t3\nGid:\t7\t7\t7\t7\n"
	if diff := cmp.Diff([]string{"0", "1000", "2", "3"}, process.ParseStatus(status)["Uid"]); diff != "" {
		t.Errorf("uids differ (-want +got):\n%s", diff)
	}
	if got := process.ParseStatus("")["Uid"]; len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}

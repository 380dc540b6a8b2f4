package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

// disk puts a disk of 1000000 sectors with its partitions (start, size) below
// sys.
func disk(t *testing.T, d *double, partitions map[string][2]string) {
	t.Helper()
	files := map[string]string{"size": "1000000\n"}
	for name, place := range partitions {
		files[name+"/partition"] = strings.TrimPrefix(name, "vda") + "\n"
		files[name+"/start"] = place[0] + "\n"
		files[name+"/size"] = place[1] + "\n"
	}
	for name, text := range files {
		path := d.path("sys/devices/vda", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(d.path("sys/dev/block"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"dm/uuid": "LVM-abc\n", "dm/name": "rl-root\n"} {
		_ = os.MkdirAll(d.path("sys/devices/dm-0/dm"), 0o755)
		filetest.Write(t, d.path("sys/devices/dm-0", path), text)
	}
	if err := errors.Join(os.Mkdir(d.path("sys/devices/dm-0/slaves"), 0o755), os.Symlink("../../vda/vda1", d.path("sys/devices/dm-0/slaves/vda1"))); err != nil {
		t.Fatal(err)
	}
	for number, name := range map[string]string{"254:0": "", "254:1": "vda1", "253:0": "../dm-0"} {
		if err := os.Symlink(d.path("sys/devices/vda", name), d.path("sys/dev/block", number)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGrowRoot(t *testing.T) {
	alone := map[string][2]string{"vda1": {"2048", "500000"}}
	tests := map[string]struct {
		root       string // device and rest of mountinfo
		partitions map[string][2]string
		want       []string
		wantErr    string
	}{
		"a partition with room": {
			root: "254:1 / / rw - ext4 /dev/vda1 rw", partitions: alone,
			want: []string{
				"sfdisk --no-reread --no-tell-kernel -N 1 /dev/vda <,+",
				"partx -u -n 1 /dev/vda",
				"resize2fs /dev/vda1",
			},
		},
		"a partition that fills the disk": {
			root: "254:1 / / rw - xfs /dev/vda1 rw", partitions: map[string][2]string{"vda1": {"2048", "997900"}},
			want: []string{"xfs_growfs /"},
		},
		"a partition before another": {
			root: "254:1 / / rw - ext4 /dev/vda1 rw", partitions: map[string][2]string{"vda1": {"2048", "1000"}, "vda2": {"4000", "1000"}},
			want: []string{"resize2fs /dev/vda1"},
		},
		"a partition behind others": {
			root: "254:1 / / rw - btrfs /dev/vda1 rw", partitions: map[string][2]string{"vda1": {"9000", "1000"}, "vda14": {"2048", "1000"}},
			want: []string{
				"sfdisk --no-reread --no-tell-kernel -N 1 /dev/vda <,+",
				"partx -u -n 1 /dev/vda",
				"btrfs filesystem resize max /",
			},
		},
		"a logical volume with room": {
			root: "253:0 / / rw - xfs /dev/mapper/rl-root rw", partitions: alone,
			want: []string{
				"sfdisk --no-reread --no-tell-kernel -N 1 /dev/vda <,+",
				"partx -u -n 1 /dev/vda",
				"pvresize /dev/vda1",
				"lvextend -l +100%FREE /dev/mapper/rl-root",
				"xfs_growfs /",
			},
		},
		"a logical volume that fills the disk": {
			root: "253:0 / / rw - ext4 /dev/mapper/rl-root rw", partitions: map[string][2]string{"vda1": {"2048", "997900"}},
			want: []string{"resize2fs /dev/mapper/rl-root"},
		},
		"a disk without partitions": {
			root: "254:0 / / rw - ext4 /dev/vda rw", partitions: alone,
			want: []string{"resize2fs /dev/vda"},
		},
		"a file system in memory": {
			root: "0:2 / / rw - rootfs rootfs rw", partitions: alone,
			wantErr: "it is not on a disk",
		},
		"a file system nobody knows": {
			root: "254:0 / / rw - minix /dev/vda rw", partitions: alone,
			wantErr: "do not know how to grow minix",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t, map[string]string{"proc/self/mountinfo": "21 1 " + tt.root + "\n30 21 0:5 / /proc rw - proc proc rw\n"})
			disk(t, d, tt.partitions)
			err := d.growRoot(t.Context())
			if tt.wantErr != "" && (err == nil || err.Error() != tt.wantErr) || tt.wantErr == "" && err != nil {
				t.Errorf("error = %v, want %q", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want, d.done); diff != "" {
				t.Errorf("what was done differs (-want +got):\n%s", diff)
			}
		})
	}
}

package mountinfo

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text string
		want []Mount
	}{
		"a disk": {"21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n",
			[]Mount{{"254:1", "/", "ext4", "/dev/vda1", "rw,errors=remount-ro"}}},
		"no optional field": {"36 35 0:40 / /data rw,relatime - 9p m0 rw,trans=virtio\n",
			[]Mount{{"0:40", "/data", "9p", "m0", "rw,trans=virtio"}}},
		"several optional fields": {"36 35 0:40 / /data rw shared:7 master:3 - 9p m0 rw\n",
			[]Mount{{"0:40", "/data", "9p", "m0", "rw"}}},
		"a part of a file system, mounted elsewhere": {"40 21 254:1 /srv/x /mnt ro - ext4 /dev/vda1 rw\n",
			[]Mount{{"254:1", "/mnt", "ext4", "/dev/vda1", "rw"}}},
		"escaped characters": {`41 21 0:5 / /a\040b\011c\012d\134e#f rw - fuse.x \043my\040disk rw` + "\n",
			[]Mount{{"0:5", "/a b\tc\nd\\e#f", "fuse.x", "#my disk", "rw"}}},
		"a name that looks escaped": {`41 21 0:5 / /a\134040b rw - tmpfs x rw` + "\n",
			[]Mount{{"0:5", `/a\040b`, "tmpfs", "x", "rw"}}},
		"escapes in options stay, for they keep a comma from being the end of an option": {`42 21 0:6 / /o rw - overlay overlay rw,lowerdir=/a\054b` + "\n",
			[]Mount{{"0:6", "/o", "overlay", "overlay", `rw,lowerdir=/a\054b`}}},
		"an empty source": {"43 21 0:7 / /t rw - tmpfs  rw\n",
			[]Mount{{"0:7", "/t", "tmpfs", "", "rw"}}},
		"the order of the lines, and a last line without its end": {"1 0 0:1 / /b rw - t s o\n2 0 0:2 / /a rw - t s o",
			[]Mount{{"0:1", "/b", "t", "s", "o"}, {"0:2", "/a", "t", "s", "o"}}},
		"lines of another form": {"\n - \n1 0 0:1 / /b\n1 0 0:1 / /b rw - t\n1 0 0:1 /b - t s o\n3 0 0:3 / /c rw - t s o\n",
			[]Mount{{"0:3", "/c", "t", "s", "o"}}},
		"nothing": {"", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Parse(tt.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Any name of a directory is read as it is, whatever it contains.
func FuzzParse(f *testing.F) {
	kernel := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)
	f.Add("a b\\040 - c#", "")
	f.Fuzz(func(t *testing.T, name, source string) {
		want := []Mount{{"0:5", "/" + name, "tmpfs", source, "rw"}}
		got := Parse("41 21 0:5 / /" + kernel.Replace(name) + " rw shared:1 - tmpfs " + kernel.Replace(source) + " rw\n")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// The machine's own list: /proc is mounted on /proc.
func TestRead(t *testing.T) {
	mounts, err := Read("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if m.Point == "/proc" && m.Type == "proc" {
			return
		}
	}
	t.Errorf("%+v has no /proc", mounts)
}

func TestReadWithoutAList(t *testing.T) {
	if mounts, err := Read(t.TempDir()); !os.IsNotExist(err) || len(mounts) != 0 {
		t.Errorf("Read = %v, %v", mounts, err)
	}
}

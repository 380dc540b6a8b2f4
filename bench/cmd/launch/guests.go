package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// imageCache is the directory of images made for measurements.
const imageCache = "/var/cache/slurmv-bench"

// guestImage returns the demo guest's image, changed by a recipe. The recipe is a script
// that changes plain files: $work/disk and, of its root file system, $work/root. It gets
// n. The image is kept until the demo guest changes.
func guestImage(ctx context.Context, b *bench, kind, recipe string, n int) (string, error) {
	base, err := output(ctx, "scripts/guest-image")
	if err != nil {
		return "", err
	}
	kind = fmt.Sprintf("%s%d", kind, n)
	image := filepath.Join(imageCache, fmt.Sprintf("%s-%s.qcow2", strings.TrimSuffix(filepath.Base(base), ".qcow2"), kind))
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	b.say("making the guest %s", kind)
	if err := os.MkdirAll(imageCache, 0o755); err != nil {
		return "", err
	}
	old, _ := filepath.Glob(filepath.Join(imageCache, "*-"+kind+".qcow2"))
	for _, path := range old {
		_ = os.Remove(path)
	}
	_, err = output(ctx, "bash", "-euc", takeApart+recipe+putTogether, "bash", base, image, fmt.Sprint(n))
	return image, err
}

const takeApart = `
work=$(mktemp -d "$(dirname "$2")/tmp.XXXXXX") n=$3
trap 'rm -rf "$work"' EXIT
change() { debugfs -w -f - "$work/root" >/dev/null 2>&1; }
qemu-img convert -O raw "$1" "$work/disk"
start=$(sfdisk -J "$work/disk" | grep -o '"start": *[0-9]*' | tail -n 1 | grep -o '[0-9]*$')
dd if="$work/disk" of="$work/root" bs=1M iflag=skip_bytes skip="$((start * 512))" conv=sparse status=none
`

const putTogether = `
dd if="$work/root" of="$work/disk" bs=1M oflag=seek_bytes seek="$((start * 512))" conv=notrunc,sparse status=none
qemu-img convert -O qcow2 "$work/disk" "$work/image"
mv "$work/image" "$2"
`

// growBy enlarges the image's file to n MB, by a file of random data.
const growBy = `
more=$((n - $(stat -c %b "$1") * 512 / 1000000))
truncate -s "+$((more + 100))M" "$work/disk" "$work/root"
echo ', +' | sfdisk -q --no-reread -N 2 "$work/disk" 2>/dev/null
e2fsck -fy "$work/root" >/dev/null 2>&1 || true
resize2fs "$work/root" >/dev/null 2>&1
head -c "${more}000000" /dev/urandom >"$work/filler"
change <<<"write $work/filler filler"
`

// sleepFor makes the guest sleep for n seconds before its agent starts.
const sleepFor = `
boot=/usr/libexec/slurm-v/boot
debugfs -R "dump $boot $work/boot" "$work/root" >/dev/null 2>&1
echo "/bin/busybox sleep $n" >>"$work/boot"
change <<END
rm $boot
write $work/boot $boot
set_inode_field $boot mode 0100755
set_inode_field $boot uid 0
set_inode_field $boot gid 0
END
debugfs -R "dump $boot $work/back" "$work/root" >/dev/null 2>&1
cmp "$work/boot" "$work/back"
`

// output runs a command and returns the last line that it prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return lines[len(lines)-1], nil
}

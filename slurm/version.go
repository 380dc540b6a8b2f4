package slurm

import (
	"context"
	"fmt"
	"regexp"
)

// A Version is a Slurm version as its headers number it: a byte each for the two parts of
// the release, and one for the bug-fix level.
type Version uint32

func (v Version) String() string {
	return fmt.Sprintf("%d.%02d.%d", v>>16&0xff, v>>8&0xff, v&0xff)
}

// Release is the part of the version that must be the same for a plugin and Slurm.
func (v Version) Release() uint32 { return uint32(v) >> 8 }

var versionPattern = regexp.MustCompile(`\b([0-9]{2})\.([0-9]{2})\.([0-9]{1,2})`)

// ParseVersion finds a version such as 22.05.8 in the output of a Slurm program.
func ParseVersion(text string) (Version, bool) {
	var a, b, c uint32
	found := versionPattern.FindString(text)
	if n, _ := fmt.Sscanf(found, "%d.%d.%d", &a, &b, &c); n != 3 {
		return 0, false
	}
	return Version(a<<16 | b<<8 | c), true
}

// Version is that of the user's programs, such as "22.05.8"; "" if it cannot be told.
func (c Client) Version(ctx context.Context) string {
	text, err := c.Run(ctx, "sbatch", "--version")
	if version, ok := ParseVersion(text); ok && err == nil {
		return version.String()
	}
	return ""
}

// Package program finds the programs that root runs in a user's job.
//
// They come from directories in which only root writes, never from the caller's PATH,
// which by sudo is the user's on some systems.
package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Path is PATH for root's own processes, and where [Find] looks. The plugin gives the
// agent the same (spank/node.c).
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Find returns the absolute path of a program: the one in first, a directory that the
// site's configuration names, or the first one in [Path]. first may be "".
func Find(first, name string) (string, error) {
	return find(first+":"+Path, name)
}

func find(list, name string) (string, error) {
	for _, dir := range filepath.SplitList(list) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %s", name, strings.TrimPrefix(strings.ReplaceAll(list, ":", ", "), ", "))
}

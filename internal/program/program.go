// Package program finds the programs that root runs in a user's job.
//
// They come from directories in which only root can write, never from the caller's PATH:
// on some systems sudo keeps the user's PATH.
package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Path is PATH for root's own processes, and where [Find] looks. The plugin gives the
// agent the same PATH (spank/node.c).
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Find returns the absolute path of a program. It looks in first, a directory from the
// site's configuration that may be "", and then in [Path].
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

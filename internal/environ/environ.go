// Package environ finds variables in a process's environment, a list of NAME=VALUE.
package environ

import (
	"slices"
	"strings"
)

// Value returns a variable's value; "" if there is none. If it stands there several times, the first one counts, as
// getenv(3) has it.
func Value(env []string, name string) string {
	if i := index(env, name); i >= 0 {
		return env[i][len(name)+1:]
	}
	return ""
}

// Has reports whether there is a variable of that name.
func Has(env []string, name string) bool { return index(env, name) >= 0 }

func index(env []string, name string) int {
	return slices.IndexFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

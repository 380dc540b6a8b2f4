package process

import (
	"strings"
)

// ParseStatus returns the words after each name in the text of /proc/PID/status.
func ParseStatus(status string) map[string][]string {
	fields := map[string][]string{}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Fields(value)
	}
	return fields
}

package slurm

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are Slurm's, by name, as "scontrol show config" prints them.
type Settings map[string]string

// Settings asks slurmctld.
func (c Client) Settings(ctx context.Context) (Settings, error) {
	text, err := c.Run(ctx, "scontrol", "show", "config")
	return ParseSettings(text), err
}

// ParseSettings reads the output of "scontrol show config".
func ParseSettings(text string) Settings {
	s := Settings{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, "=")
		if !found {
			continue
		}
		value = strings.TrimSpace(value)
		if value == "(null)" {
			value = ""
		}
		s[strings.TrimSpace(name)] = value
	}
	return s
}

// List returns the words of a value such as "task/cgroup,task/affinity".
func (s Settings) List(name string) []string {
	return strings.FieldsFunc(s[name], func(r rune) bool { return r == ',' || r == ';' })
}

// Has reports whether a value's list contains the word.
func (s Settings) Has(name, word string) bool { return slices.Contains(s.List(name), word) }

// Seconds returns the number in a value such as "60 sec".
func (s Settings) Seconds(name string) (int, bool) {
	number, _, _ := strings.Cut(s[name], " ")
	n, err := strconv.Atoi(number)
	return n, err == nil
}

// KillWait returns the time from TERM to KILL, or Slurm's default if it is not set.
func (s Settings) KillWait() time.Duration {
	if seconds, ok := s.Seconds("KillWait"); ok {
		return time.Duration(seconds) * time.Second
	}
	return 30 * time.Second
}

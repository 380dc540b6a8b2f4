package slurm

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Conf is Slurm's configuration, values by name, as "scontrol show config" prints them.
type Conf map[string]string

// Conf asks slurmctld.
func (c Client) Conf(ctx context.Context) (Conf, error) {
	text, err := c.Run(ctx, "scontrol", "show", "config")
	return ParseConf(text), err
}

// ParseConf reads the output of "scontrol show config".
func ParseConf(text string) Conf {
	c := Conf{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, "=")
		if !found {
			continue
		}
		value = strings.TrimSpace(value)
		if value == "(null)" {
			value = ""
		}
		c[strings.TrimSpace(name)] = value
	}
	return c
}

// List returns the words of a value such as "task/cgroup,task/affinity".
func (c Conf) List(name string) []string {
	return strings.FieldsFunc(c[name], func(r rune) bool { return r == ',' || r == ';' })
}

// Has reports whether a value's list contains the word.
func (c Conf) Has(name, word string) bool { return slices.Contains(c.List(name), word) }

// Seconds returns the number in a value such as "60 sec".
func (c Conf) Seconds(name string) (int, bool) {
	number, _, _ := strings.Cut(c[name], " ")
	n, err := strconv.Atoi(number)
	return n, err == nil
}

// KillWait returns the time from TERM to KILL, or Slurm's default if it is not set.
func (c Conf) KillWait() time.Duration {
	if seconds, ok := c.Seconds("KillWait"); ok {
		return time.Duration(seconds) * time.Second
	}
	return 30 * time.Second
}

package slurm

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/slurm-v/slurm-v/internal/environ"
)

// StateSaveLocation returns the directory in which slurmctld keeps its state. It reads
// slurm.conf itself if it finds the directory there, because asking slurmctld takes longer.
func (c Client) StateSaveLocation(ctx context.Context) (string, error) {
	text, _ := confText(c.Env)
	if dir := saveLocation(text); dir != "" {
		return dir, nil
	}
	conf, err := c.Conf(ctx)
	if err == nil && conf["StateSaveLocation"] == "" {
		err = fmt.Errorf("scontrol show config has no StateSaveLocation: write the directory into state in [fabric] of slurmv.toml")
	}
	return conf["StateSaveLocation"], err
}

// confText reads slurm.conf, if it is here.
func confText(env []string) (text string, found bool) {
	path := environ.Value(env, "SLURM_CONF")
	if path == "" {
		path = defaultConf
	}
	read, err := os.ReadFile(path)
	return string(read), err == nil
}

const defaultConf = "/etc/slurm/slurm.conf"

// saveLocation returns the StateSaveLocation of a slurm.conf; "" if it is not there, or may
// be in a file that this one includes. Later lines win (s_p_parse_file).
func saveLocation(text string) (dir string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case strings.HasPrefix(name, "include"):
			return ""
		case name == "statesavelocation":
			dir = strings.TrimSpace(value)
		}
	}
	if !strings.HasPrefix(dir, "/") || strings.ContainsAny(dir, "%\" \t\\") {
		return "" // more on the line, or a pattern: scontrol knows
	}
	return dir
}

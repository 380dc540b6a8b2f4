// Package imagecheck says what a VM that was booted from an image has.
package imagecheck

import (
	"cmp"
	_ "embed" // facts.sh
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/slurm-v/slurm-v/internal/imagempi"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/report"
)

//go:embed facts.sh
var facts string

// Script is a shell script that prints what a guest has.
func Script() string { return imagempi.Shell + facts }

// An Image is what a VM that was booted from it has said of itself. Users write
// images, so any of it may be false.
type Image struct {
	Image        string   `json:"image"`
	Firmware     string   `json:"firmware"` // bios or uefi
	ReadySeconds float64  `json:"ready_seconds"`
	OS           string   `json:"os"`
	Kernel       string   `json:"kernel"`
	Agent        string   `json:"agent"` // path in the VM
	AgentFrom    string   `json:"agent_from"`
	AgentVersion string   `json:"agent_version"`
	CloudInit    string   `json:"cloud_init"` // version; "" without cloud-init
	FileSystems  []string `json:"file_systems"`
	MPI          []string `json:"mpi"`
	PMI          bool     `json:"pmi"`           // programs in the VM can reach Slurm's process manager
	PMILibraries []string `json:"pmi_libraries"` // by which MPI libraries that have no PMI of their own ask it, such as libpmi2.so.0
}

// Read reads what the script has printed in the guest, and what the node's agent knows.
func Read(facts string, nodes []nodeagent.NodeVMs) Image {
	all := map[string][]string{}
	for line := range strings.Lines(facts) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		all[key] = append(all[key], strings.Map(visible, value))
	}
	one := func(key string) string { return strings.Join(all[key], " ") }
	image := Image{
		OS: one("os"), Kernel: one("kernel"), Agent: one("agent"), AgentFrom: "image",
		AgentVersion: strings.TrimPrefix(one("agent_version"), "slurmv-guest "), CloudInit: one("cloud_init"),
		FileSystems: all["file_system"], MPI: all["mpi"], PMI: one("pmi") != "", PMILibraries: all["pmi_library"],
		ReadySeconds: report.Summarize(nodes).Ready.Seconds(),
	}
	if strings.HasPrefix(image.Agent, "/run/slurmv-guest/") { // see images/start-guest.sh
		image.AgentFrom = "cloud-init"
	}
	if len(nodes) > 0 {
		image.Firmware = nodes[0].Firmware
	}
	return image
}

// visible replaces characters that a terminal would obey.
func visible(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}

// WriteText prints a line for each fact.
func (i Image) WriteText(out io.Writer) error {
	pmi := "no"
	if i.PMI {
		pmi = "yes"
	}
	from := map[string]string{"image": "the image itself", "cloud-init": "cloud-init"}[i.AgentFrom]
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"image", i.Image}, {"firmware", i.Firmware}, {"ready after", fmt.Sprintf("%.1f s", i.ReadySeconds)},
		{"system", i.OS}, {"kernel", i.Kernel}, {"guest agent", i.AgentVersion + ", by " + from},
		{"cloud-init", cmp.Or(i.CloudInit, "none")}, {"file systems", cmp.Or(strings.Join(i.FileSystems, ", "), "-")},
		{"MPI", cmp.Or(strings.Join(i.MPI, ", "), "none in PATH")}, {"PMI", pmi},
		{"PMI libraries", cmp.Or(strings.Join(i.PMILibraries, ", "), "none")},
	} {
		fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
	}
	return t.Flush()
}

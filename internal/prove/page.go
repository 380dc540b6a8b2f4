package prove

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/internal/markup"
	"github.com/slurm-v/slurm-v/internal/report"
)

//go:embed page.css
var pageStyle markup.CSS

// WriteHTML writes the proof as one page, for a screen and for paper.
func (p Proof) WriteHTML(out io.Writer) error {
	parts := markup.Fragment{p.header(), section("What was proven", "Each step was tried by jobs of this site's own Slurm.", p.stepTable())}
	if len(p.Stages) > 0 {
		parts = append(parts, section("How the VMs started", "The time of each stage over all VMs, which booted from the image. "+
			"Several stages run at the same time.", p.stageTable()))
	}
	if len(p.Costs) > 0 {
		parts = append(parts, section("What VMs cost", costWords, p.costs()))
	}
	if len(p.Nodes) > 0 {
		parts = append(parts, section("The nodes", "What slurmv check says of them to the user of the jobs.", p.nodeTable()))
	}
	return markup.WritePage(out, p.Headline(), pageStyle, append(parts, footer())...)
}

const costWords = "The same program ran in the VMs and on their bare nodes, in turns. A bar is the median of its rounds, a dot a round. " +
	"The page reports a difference only if it is greater than the spread of the measured values."

func footer() markup.Markup {
	return el("footer", "", words("Made by slurmv prove. Names of hosts and users, addresses and paths are left out. "+
		"The figures are in prove.json; the scripts and the output of the jobs stay with the site."))
}

// el is an element with a class, or without one.
func el(name, class string, content ...markup.Markup) markup.Element {
	if class == "" {
		return markup.El(name, nil, content...)
	}
	return markup.El(name, []string{"class", class}, content...)
}

func words(format string, args ...any) markup.Text { return markup.Text(fmt.Sprintf(format, args...)) }

func section(title, about string, content markup.Markup) markup.Markup {
	return markup.Fragment{el("h2", "", words("%s", title)), el("p", "", words("%s", about)), content}
}

func (p Proof) header() markup.Markup {
	class := ""
	if !p.Passed {
		class = "failed"
	}
	facts := el("dl", "facts", p.facts()...)
	return markup.Fragment{el("header", class, el("h1", "", words("%s", p.Headline())), el("p", "", words("%s", p.summary()))), facts}
}

func (p Proof) summary() string {
	s := p.Setting
	text := fmt.Sprintf("%s on %s, each with %s and %d MiB", report.Count(s.Nodes*s.VMs, "VM"), report.Count(s.Nodes, "node"), report.Count(s.VCPUs, "vCPU"), s.MemoryMiB)
	if s.HugePages != "" {
		text += ", with --vm-hugepages=" + s.HugePages
	}
	if s.Quick {
		text += "; a quick proof, with small measurements"
	}
	return text + "."
}

func (p Proof) facts() (all markup.Fragment) {
	facts := [][2]string{{"Date", p.Date}, {"Slurm-V", p.SlurmV}, {"Slurm", p.Slurm}}
	for _, s := range p.Software {
		name, version, _ := strings.Cut(s, ": ")
		facts = append(facts, [2]string{name, version})
	}
	facts = append(facts, [2]string{"VMs run by", p.Setting.accel()}, [2]string{"vCPUs", p.Setting.pinning()})
	for _, f := range facts {
		if f[1] != "" {
			all = append(all, el("div", "", el("dt", "", words("%s", f[0])), el("dd", "", words("%s", f[1]))))
		}
	}
	return all
}

func (s Setting) accel() string {
	switch s.Accel {
	case "kvm":
		return "KVM"
	case "tcg":
		return "emulation (TCG), without KVM"
	}
	return s.Accel
}

func (s Setting) pinning() string {
	switch {
	case s.Accel == "":
		return ""
	case s.Pinned:
		return "pinned to CPUs of their own"
	}
	return "not pinned"
}

// marks say how a step has ended, also where there are no colours.
var marks = map[Result]string{Passed: "✓ passed", Failed: "✗ failed", Skipped: "– skipped"}

func (p Proof) stepTable() markup.Markup {
	var lines markup.Fragment
	for _, s := range p.Steps {
		took := ""
		if s.Seconds >= 0.05 {
			took = fmt.Sprintf("%.1f s", s.Seconds)
		}
		lines = append(lines, el("tr", "",
			el("td", "mark "+string(s.Result), words("%s", marks[s.Result])),
			el("td", "name", words("%s", s.Name)),
			el("td", "sentence", words("%s", s.Proves), s.details()),
			el("td", "", words("%s", took))))
	}
	return table(nil, lines)
}

func (s Step) details() (all markup.Fragment) {
	if s.Reason != "" {
		all = append(all, el("div", "why "+string(s.Result), words("%s", s.Reason)))
	}
	var items markup.Fragment
	for _, e := range s.Evidence {
		items = append(items, el("li", "", words("%s", e)))
	}
	if len(items) > 0 {
		all = append(all, el("ul", "evidence", items...))
	}
	return all
}

func table(headings []string, lines markup.Fragment) markup.Markup {
	var head markup.Fragment
	for _, h := range headings {
		class := ""
		if !strings.HasPrefix(h, ">") {
			class = "text"
		}
		head = append(head, el("th", class, words("%s", strings.TrimPrefix(h, ">"))))
	}
	body := el("tbody", "", lines...)
	if len(head) == 0 {
		return el("div", "wide", el("table", "", body))
	}
	return el("div", "wide", el("table", "", el("thead", "", el("tr", "", head...)), body))
}

func (p Proof) stageTable() markup.Markup {
	longest := 0.0
	for _, s := range p.Stages {
		longest = max(longest, s.Max)
	}
	var lines markup.Fragment
	for _, s := range p.Stages {
		lines = append(lines, el("tr", "",
			el("td", "name", words("%s", s.Name)), el("td", "", s.bar(longest)),
			el("td", "", words("%.2f s", s.Median)), el("td", "", words("%.2f–%.2f s", s.Min, s.Max)),
			el("td", "words what", words("%s", s.What))))
	}
	return table([]string{"stage", "", ">median", ">least–greatest", "what"}, lines)
}

const spanWidth = 220

// bar shows the range of a stage, with its median.
func (s Stage) bar(longest float64) markup.Markup {
	x := func(v float64) float64 { return spanWidth * v / max(longest, 1e-9) }
	return markup.El("svg", []string{"class", "span", "viewBox", "0 0 220 14", "aria-hidden", "true"},
		rect("median", 0, 3, max(1, x(s.Median)), 8), rect("range", x(s.Median), 3, x(s.Max-s.Median), 8))
}

func rect(class string, x, y, width, height float64) markup.Element {
	return markup.El("rect", []string{"class", class, "x", markup.Units(x), "y", markup.Units(y),
		"width", markup.Units(width), "height", markup.Units(height), "rx", "1.5"})
}

func (p Proof) costs() markup.Markup {
	var all markup.Fragment
	for _, c := range p.Costs {
		class := "verdict"
		if c.Percent != nil {
			class += " number"
		}
		all = append(all, el("div", "cost", el("h3", "", words("%s", c.Name)), el("p", "", words("%s; %s is better", c.What, c.Best)), c.picture(),
			el("p", class, words("%s", c.Verdict))))
	}
	return el("div", "costs", all...)
}

// The picture of a comparison, in SVG user units.
const (
	picWidth = 420.0
	picLeft  = 44.0  // names of the sides
	picRight = 316.0 // the rest is for values
	picRow   = 26.0
)

func (c Comparison) picture() markup.Markup {
	greatest := slices.Max(append(slices.Concat(c.Bare, c.VMs), 1e-12))
	all := markup.Fragment{markup.El("line", []string{"class", "axis", "x1", markup.Units(picLeft), "x2", markup.Units(picLeft), "y1", "0", "y2", markup.Units(2 * picRow)})}
	all = append(all, c.side("bare", "bare", c.Bare, c.BareMedian, greatest, 0)...)
	all = append(all, c.side("vms", "VMs", c.VMs, c.VMsMedian, greatest, picRow)...)
	label := fmt.Sprintf("%s: %s on bare nodes, %s in VMs", c.Name, c.value(c.BareMedian), c.value(c.VMsMedian))
	return markup.El("svg", []string{"class", "cost-values", "role", "img", "aria-label", label,
		"viewBox", fmt.Sprintf("0 0 %s %s", markup.Units(picWidth), markup.Units(2*picRow))}, all...)
}

func (c Comparison) side(class, name string, values []float64, middle, greatest, y float64) markup.Fragment {
	x := func(v float64) float64 { return picLeft + v/greatest*(picRight-picLeft) }
	all := markup.Fragment{
		label("start", 0, y+17, name),
		rect(class, picLeft, y+5, max(1.5, x(middle)-picLeft), picRow-10),
		label("end", picWidth, y+17, c.value(middle)),
	}
	for _, v := range values {
		all = append(all, markup.El("circle", []string{"class", "dot", "cx", markup.Units(x(v)), "cy", markup.Units(y + picRow/2), "r", "2.6"}))
	}
	return all
}

func label(anchor string, x, y float64, text string) markup.Markup {
	return markup.El("text", []string{"x", markup.Units(x), "y", markup.Units(y), "text-anchor", anchor}, words("%s", text))
}

// value writes a value with three significant digits and its unit.
func (c Comparison) value(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f %s", v, c.Unit)
	case v < 0.1 && c.Unit == "s":
		return fmt.Sprintf("%.3g ms", 1000*v)
	}
	return fmt.Sprintf("%.3g %s", v, c.Unit)
}

func (p Proof) nodeTable() markup.Markup {
	var lines markup.Fragment
	for i, n := range p.Nodes {
		lines = append(lines, el("tr", "",
			el("td", "name", words("node %d", i+1)), el("td", "words", words("%s", n.CPU)), el("td", "", words("%d", n.CPUs)),
			el("td", "", words("%d GiB", (n.MiB+512)>>10)), el("td", "words", words("Linux %s", n.Kernel)), el("td", "words", words("%s", n.said()))))
	}
	return table([]string{"node", "CPU", ">CPUs", ">memory", "kernel", "slurmv check"}, lines)
}

// said names the checks that were not content.
func (n Node) said() string {
	var told []string
	for _, status := range []string{"error", "warning"} {
		var names []string
		for _, c := range n.Checks {
			if c.Status == status && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
		if len(names) > 0 {
			told = append(told, status+": "+strings.Join(names, ", "))
		}
	}
	if len(told) == 0 {
		return "content"
	}
	return strings.Join(told, "; ")
}

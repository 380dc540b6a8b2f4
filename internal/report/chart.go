package report

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// All lengths are in SVG user units, which are pixels unless the picture is scaled.
const (
	width      = 1120.0
	legendStep = 22.0
	caption    = 172.0 // room for the caption of a line of the legend
	axisLine   = 24.0
	labelX     = 6.0
	indent     = 14.0 // of a VM's name below its node's
	letter     = 7.0  // estimated width of a letter at size 12
	bold       = 7.9  // estimated width of a letter in a node's name
	inBar      = 6.4  // estimated width of a letter at size 11
	endRoom    = 62.0 // on the right, for the time at which a VM was ready
	nodeGap    = 8.0
)

// A chart is the launch in the coordinates of the picture. Its head is the legend and the
// upper labels of the time axis; its body is the lanes. Both begin at y = 0, so that a
// page can keep the head in sight while the body scrolls.
type chart struct {
	title               string
	head, body          float64 // heights
	left, right         float64 // ends of the time axis
	rowHeight, fontSize float64
	legend              []legendLine
	ticks               []tick
	rows                []row
}

// A legendLine has the stages of nodes, or those of VMs.
type legendLine struct {
	y       float64 // of the caption
	caption string
	entries []legendEntry
}

type legendEntry struct {
	x, y float64
	key
	stage, meaning string
}

// A key says how a stage is drawn.
type key struct {
	colour int // a class of picture.css
	shared bool
}

// class returns the class in picture.css for the key.
func (k key) class() string {
	if k.shared {
		return fmt.Sprintf("bar c%d shared", k.colour)
	}
	return fmt.Sprintf("bar c%d own", k.colour)
}

// A tick is a mark of the time axis.
type tick struct {
	x     float64
	label string
}

// A row is a lane with its place in the body.
type row struct {
	y           float64
	labelX      float64
	label, full string // label is full, shortened to the available room
	node        bool   // the first lane of a node
	bars        []bar
	endX        float64
	end         string // when the last stage of the VM ended, or "failed"
	endTitle    string
	failed      bool
}

type bar struct {
	x, width float64
	key
	text  string // "" if it does not fit
	title string
}

// colours are numbers of classes in picture.css. A shared stage and a VM's stage may have
// the same colour, because they are drawn differently. Consecutive stages have different
// colours.
var colours = map[string]int{
	"queue": 0, "image": 1, "taps": 2, "vf": 3, "plan": 4, "libvirt": 5, "template": 6, "network": 7, "ivshmem": 8,
	"wait": 0, "start": 1, "define": 2, "restore": 3, "disk": 4, "boot": 5, "agent": 7,
}

// unknownColour is for stages that another release of the agent has recorded.
const unknownColour = 8

func keyOf(stage string, shared bool) key {
	if colour, found := colours[stage]; found {
		return key{colour, shared}
	}
	return key{unknownColour, shared}
}

// newChart lays out the picture of a launch.
func newChart(nodes []nodeagent.NodeVMs) chart {
	all := lanes(nodes)
	c := chart{title: Summarize(nodes).String(), right: width - endRoom, rowHeight: 24, fontSize: 12}
	if len(all) > 100 {
		c.rowHeight, c.fontSize = 16, 10.5
	}
	c.left = labelRoom(all)
	c.addLegend(nodes)
	span := max(visible, Summarize(nodes).Ready)
	if len(all) > 0 {
		c.addTicks(span)
	}
	c.addRows(all, span)
	return c
}

// labelRoom returns the width of the column of names.
func labelRoom(all []lane) float64 {
	longest := 0
	for _, l := range all {
		longest = max(longest, utf8.RuneCountInString(l.label))
	}
	return min(260, indent+12+bold*float64(max(4, longest)))
}

// addLegend explains the stages that occur, in the order of their first begin.
func (c *chart) addLegend(nodes []nodeagent.NodeVMs) {
	shared, own := map[string]bool{}, map[string]bool{}
	for _, l := range lanes(nodes) {
		occurs := own
		if l.vm == "" {
			occurs = shared
		}
		for _, s := range l.stages {
			occurs[s.Name] = true
		}
	}
	rows := Rows(nodes)
	c.addLegendLine("shared by a node's VMs", rows, shared, true)
	c.addLegendLine("of one VM", rows, own, false)
	c.head += axisLine
}

func (c *chart) addLegendLine(about string, rows []Row, occurs map[string]bool, shared bool) {
	if len(occurs) == 0 {
		return
	}
	l := legendLine{y: c.head, caption: about}
	x := caption
	for _, r := range rows {
		if !occurs[r.Stage] {
			continue
		}
		room := 42 + letter*float64(utf8.RuneCountInString(r.Stage))
		if x > caption && x+room > width {
			x, c.head = caption, c.head+legendStep
		}
		l.entries = append(l.entries, legendEntry{x, c.head, keyOf(r.Stage, shared), r.Stage, r.Meaning})
		x += room
	}
	c.head += legendStep
	c.legend = append(c.legend, l)
}

// x returns the position of a time since the picture's zero. It keeps impossible times
// from records inside the picture.
func (c *chart) x(at, span time.Duration) float64 {
	part := at.Seconds() / span.Seconds()
	return c.left + min(1, max(0, part))*(c.right-c.left)
}

func (c *chart) addTicks(span time.Duration) {
	step := tickStep(span.Seconds())
	for i := 0; float64(i)*step <= span.Seconds(); i++ {
		at := float64(i) * step
		x := c.left + at/span.Seconds()*(c.right-c.left)
		c.ticks = append(c.ticks, tick{x, fmt.Sprintf("%.6g s", at)})
	}
}

// tickStep returns 1, 2 or 5 times a power of ten, in seconds, so that span has at most
// ten steps.
func tickStep(span float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(span/10)))
	for _, digit := range []float64{1, 2, 5} {
		if span <= 10*digit*power {
			return digit * power
		}
	}
	return 10 * power
}

func (c *chart) addRows(all []lane, span time.Duration) {
	for i, l := range all {
		if i > 0 && l.node != all[i-1].node {
			c.body += nodeGap
		}
		r := c.row(l, span)
		r.y = c.body
		r.node = l.vm == "" && l.label != ""
		c.rows = append(c.rows, r)
		c.body += c.rowHeight
	}
	c.body += axisLine
}

func (c *chart) row(l lane, span time.Duration) row {
	r := row{labelX: labelX, full: l.label, endX: c.x(l.offset+last(l.stages), span) + 6, failed: l.failed}
	if l.vm != "" {
		r.labelX += indent
		r.end, r.endTitle = ending(l)
	}
	r.label = cut(l.label, int((c.left-r.labelX-6)/bold/c.fontSize*12))
	for _, s := range l.stages {
		r.bars = append(r.bars, c.bar(l, s, span))
	}
	return r
}

// ending returns the text after the bars of a VM.
func ending(l lane) (text, title string) {
	switch {
	case l.failed:
		return "failed", l.vm + " did not come up"
	case len(l.stages) == 0:
		return "", ""
	}
	at := l.offset + last(l.stages)
	return seconds(at), fmt.Sprintf("%s has been through its own stages %s after the request", l.vm, precise(at))
}

// cut shortens a text to that many letters.
func cut(text string, letters int) string {
	all := []rune(text)
	if len(all) <= letters {
		return text
	}
	return string(all[:max(1, letters-1)]) + "…"
}

// thinnest is the least width of a bar, so that stages of some milliseconds are visible.
const thinnest = 1.0

func (c *chart) bar(l lane, s nodeagent.Stage, span time.Duration) bar {
	from, to := c.x(l.offset+s.Start, span), c.x(l.offset+s.End, span)
	b := bar{x: from, width: max(thinnest, to-from), key: keyOf(s.Name, l.vm == ""), title: barTitle(l, s)}
	if c.fontSize >= 12 && inBar*float64(utf8.RuneCountInString(s.Name))+8 < b.width {
		b.text = s.Name
	}
	return b
}

// barTitle returns the text that a browser shows while the pointer is on a bar.
func barTitle(l lane, s nodeagent.Stage) string {
	whose := "shared by the VMs of " + l.node
	if l.vm != "" {
		whose = l.vm + " on " + l.node
	}
	title := fmt.Sprintf("%s: %s\nstart %s, duration %s", s.Name, whose, precise(l.offset+s.Start), precise(s.End-s.Start))
	if meaning := meanings[s.Name]; meaning != "" {
		title += "\n" + meaning
	}
	return title
}

// precise writes a time to the millisecond.
func precise(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

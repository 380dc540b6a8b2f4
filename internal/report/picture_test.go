package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// parsed is an element of a picture or page, read as XML.
type parsed struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Elements []parsed   `xml:",any"`
}

func (e parsed) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// all returns e and its content, in the order of the file.
func (e parsed) all() []parsed {
	found := []parsed{e}
	for _, child := range e.Elements {
		found = append(found, child.all()...)
	}
	return found
}

func (e parsed) child(name string) parsed {
	for _, c := range e.Elements {
		if c.XMLName.Local == name {
			return c
		}
	}
	return parsed{}
}

func isBar(e parsed) bool {
	return strings.HasPrefix(e.attr("class"), "bar ")
}

// bars returns the bars of the lanes, without the legend's.
func bars(t *testing.T, svg parsed) (found []parsed) {
	t.Helper()
	for _, e := range svg.all() {
		if strings.HasPrefix(e.attr("transform"), "translate") {
			for _, inner := range e.all() {
				if isBar(inner) {
					found = append(found, inner)
				}
			}
			return found
		}
	}
	t.Fatal("the picture has no lanes")
	return nil
}

// texts returns all texts of the picture, without those that appear on pointing.
func texts(svg parsed) (found []string) {
	for _, e := range svg.all() {
		if e.XMLName.Local == "text" {
			found = append(found, e.Text)
		}
	}
	return found
}

func drawn(t *testing.T, nodes []nodeagent.NodeVMs) parsed {
	t.Helper()
	var text bytes.Buffer
	if err := WriteSVG(&text, nodes); err != nil {
		t.Fatal(err)
	}
	var svg parsed
	if err := xml.Unmarshal(text.Bytes(), &svg); err != nil {
		t.Fatalf("%v in:\n%s", err, text.String())
	}
	if svg.XMLName.Local != "svg" || svg.XMLName.Space != "http://www.w3.org/2000/svg" {
		t.Errorf("the picture is a %v", svg.XMLName)
	}
	return svg
}

func paged(t *testing.T, job string, nodes []nodeagent.NodeVMs) string {
	t.Helper()
	var page strings.Builder
	if err := WriteHTML(&page, job, nodes); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestEveryStageHasABarWithItsTimes(t *testing.T) {
	svg := drawn(t, launched())
	var titles []string
	for _, b := range bars(t, svg) {
		titles = append(titles, b.child("title").Text)
	}
	for _, want := range []string{
		"image: shared by the VMs of n1\nstart 2.000 s, duration 4.000 s\n" + meanings["image"],
		"vf: shared by the VMs of n1\nstart 3.000 s, duration 1.000 s\n" + meanings["vf"],
		"boot: vm1 on n1\nstart 6.000 s, duration 5.000 s\n" + meanings["boot"],
		"boot: vm2 on n2\nstart 4.000 s, duration 6.000 s\n" + meanings["boot"],
	} {
		if !slices.Contains(titles, want) {
			t.Errorf("no bar has the title %q, but %q", want, titles)
		}
	}
	if len(titles) != 10 {
		t.Errorf("%d bars for 10 stages: %q", len(titles), titles)
	}
	for _, text := range []string{"3 VMs on 2 nodes, ready after 12.00 s", "n1", "vm0", "vm1", "n2", "vm2", "image", "0 s", "2 s", "12 s", "11.00 s"} {
		if !slices.Contains(texts(svg), text) {
			t.Errorf("%q is not in the picture", text)
		}
	}
}

// A bar's position is its time: all bars have the same scale, from the axis's 0 s.
func TestBarsLieWhereTheAxisSays(t *testing.T) {
	c := newChart(launched())
	second := (c.right - c.left) / 12
	for _, r := range c.rows {
		for _, b := range r.bars {
			times := regexp.MustCompile(`start ([\d.]+) s, duration ([\d.]+) s`).FindStringSubmatch(b.title)
			start, _ := strconv.ParseFloat(times[1], 64)
			took, _ := strconv.ParseFloat(times[2], 64)
			if x := c.left + start*second; b.x < x-0.01 || b.x > x+0.01 || b.width < took*second-0.01 || b.width > took*second+0.01 {
				t.Errorf("%q lies at %.2f with a width of %.2f", b.title, b.x, b.width)
			}
		}
	}
	if first := c.ticks[0]; first.x != c.left || first.label != "0 s" {
		t.Errorf("the axis begins with %v", first)
	}
	if last := c.ticks[len(c.ticks)-1]; last.label != "12 s" || last.x < c.right-0.01 {
		t.Errorf("the axis ends with %v", last)
	}
}

func TestTickStep(t *testing.T) {
	for span, want := range map[float64]float64{0.001: 0.0001, 0.9: 0.1, 1: 0.1, 1.1: 0.2, 12: 2, 47: 5, 99: 10, 1800: 200} {
		if got := tickStep(span); got < want*0.999 || got > want*1.001 {
			t.Errorf("steps of %v s in %v s, want %v", got, span, want)
		}
	}
}

// Neighbouring stages in a legend line or a lane have different colours.
func TestStagesHaveTheirOwnColours(t *testing.T) {
	light, dark, _ := strings.Cut(string(pictureStyle), "@media (prefers-color-scheme: dark)")
	shared := []string{"queue", "plan", "image", "vf", "taps", "libvirt", "ivshmem", "template", "network"}
	seen := map[key]string{}
	for stage := range meanings {
		if stage == ready {
			continue
		}
		k := keyOf(stage, slices.Contains(shared, stage))
		if _, found := colours[stage]; !found {
			t.Errorf("%s has no colour", stage)
		}
		if other := seen[k]; other != "" {
			t.Errorf("%s is drawn as %s is", stage, other)
		}
		seen[k] = stage
		rule := fmt.Sprintf(".launch .c%d rect {", k.colour)
		if !strings.Contains(light, rule) || !strings.Contains(dark, rule) {
			t.Errorf("picture.css lacks %q in light or dark", rule)
		}
	}
}

func TestNamesStayText(t *testing.T) {
	const hostile = "<script>alert(\"1\")</script>&amp;'\x01\xff]]>"
	nodes := launched()
	nodes[0].Node = hostile
	nodes[0].VMs[0].Name = hostile
	nodes[0].VMs[0].Stages[0].Name = hostile
	const shown = "<script>alert(\"1\")</script>&amp;'\uFFFD\uFFFD]]>"
	svg := drawn(t, nodes)
	titles := 0
	for _, e := range svg.all() {
		if e.XMLName.Local == "script" {
			t.Error("a name became an element of the picture")
		}
		if e.XMLName.Local == "title" && strings.Contains(e.Text, shown) {
			titles++
		}
	}
	if titles < 8 { // the stages of the node and its VM, the legend, the labels
		t.Errorf("the name is in %d titles", titles)
	}
	if page := paged(t, hostile, nodes); strings.Contains(page, "<script") || strings.Contains(page, "\x01") || !utf8.ValidString(page) {
		t.Error("a name became markup of the page")
	}
}

func TestNothingIsLoadedFromElsewhere(t *testing.T) {
	var svg strings.Builder
	if err := WriteSVG(&svg, launched()); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"picture": svg.String(), "page": paged(t, "7", launched())} {
		text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
		for _, reference := range []string{"http:", "https:", "href", "src=", "url(", "@import", "<script", "<link"} {
			if strings.Contains(text, reference) {
				t.Errorf("%q is in the %s", reference, name)
			}
		}
	}
}

func TestNothingIsKnown(t *testing.T) {
	for name, nodes := range map[string][]nodeagent.NodeVMs{
		"no nodes": nil, "a node without stages": {{Node: "n1"}},
	} {
		if got := texts(drawn(t, nodes)); !slices.Contains(got, "No stages are recorded.") {
			t.Errorf("%s: the picture says %q", name, got)
		}
		if page := paged(t, "7", nodes); !strings.Contains(page, "No stages are recorded.") {
			t.Errorf("%s: the page does not say so", name)
		}
	}
	if got := texts(drawn(t, []nodeagent.NodeVMs{{Node: "n1", VMs: []nodeagent.VM{{Name: "vm0"}}}})); !slices.Contains(got, "vm0") {
		t.Errorf("a VM without stages is not in the picture: %q", got)
	}
}

// Users can change records: what these say must not leave the picture.
func TestImpossibleTimesStayInThePicture(t *testing.T) {
	nodes := launched()
	nodes[0].VMs[0].Stages = []nodeagent.Stage{stage("disk", -90*s, -80*s), stage("boot", 5*s, 2*s), stage("agent", 0, 1<<62)}
	nodes[1].Began = time.Time{}
	svg := drawn(t, nodes)
	for _, b := range bars(t, svg) {
		x, errX := strconv.ParseFloat(b.child("rect").attr("x"), 64)
		w, errW := strconv.ParseFloat(b.child("rect").attr("width"), 64)
		if errX != nil || errW != nil || x < 0 || w < thinnest || x+w > width {
			t.Errorf("a bar at %q with a width of %q", b.child("rect").attr("x"), b.child("rect").attr("width"))
		}
	}
}

func TestAVMThatFailedIsMarked(t *testing.T) {
	nodes := launched()
	nodes[0].VMs[1].State = "failed"
	for _, e := range drawn(t, nodes).all() {
		if e.Text == "failed" && e.attr("class") == "failed" {
			return
		}
	}
	t.Error("the picture does not say that a VM failed")
}

// manyVMs returns a launch on that many nodes with that many VMs on each.
func manyVMs(nodes, vms int) (all []nodeagent.NodeVMs) {
	for n := range nodes {
		node := nodeagent.NodeVMs{Node: fmt.Sprintf("node%d", n), Began: noon, Stages: launched()[0].Stages}
		for v := range vms {
			node.VMs = append(node.VMs, nodeagent.VM{
				Name:   fmt.Sprintf("vm%d", n*vms+v),
				Stages: []nodeagent.Stage{stage("disk", 0, s/10), stage("start", s/10, s), stage("boot", s, 7*s), stage("agent", 7*s, 8*s)},
			})
		}
		all = append(all, node)
	}
	return all
}

func TestManyVMs(t *testing.T) {
	nodes := manyVMs(64, 8)
	svg := drawn(t, nodes)
	if got, want := len(bars(t, svg)), 64*(4+8*4); got != want {
		t.Errorf("%d bars, want %d", got, want)
	}
	height, _ := strconv.ParseFloat(svg.attr("height"), 64)
	if lanes := 64.0 * 10; height < lanes*15 || height > lanes*20 {
		t.Errorf("%v lanes are %v high", lanes, height)
	}
	if size := len(paged(t, "7", nodes)); size > 2_000_000 {
		t.Errorf("the page has %d bytes", size)
	}
}

package prove

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// elements counts the elements of a page by name and class. A page is XML, too.
func elements(t *testing.T, page string) map[string]int {
	t.Helper()
	count := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(page, "<!DOCTYPE html>")))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, page)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					count[e.Name.Local+"."+a.Value]++
				}
			}
		}
	}
}

func paged(t *testing.T, p Proof) string {
	t.Helper()
	var page bytes.Buffer
	if err := p.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestPage(t *testing.T) {
	e := good()
	page := paged(t, e.Judge())
	got := elements(t, page)
	for element, want := range map[string]int{
		"td.mark passed": 15, "td.mark failed": 0, "header.failed": 0,
		"circle.dot": 2*2*2 + 2*2, // two rounds: two metrics on both sides, and two on one
		"rect.bare":  4, "rect.vms": 4, "svg.span": 2, "script": 0, "link": 0, "img": 0,
	} {
		if got[element] != want {
			t.Errorf("%d × %s, want %d", got[element], element, want)
		}
	}
	e.file("streams.status", "23", "1")
	page = paged(t, e.Judge())
	got = elements(t, page)
	if got["td.mark failed"] != 1 || got["header.failed"] != 1 || !strings.Contains(page, "the exit status is 1") {
		t.Errorf("a failed step is not shown: %v", got)
	}
}

func TestPageOfAlmostNothing(t *testing.T) {
	e := Evidence{Request: asked(), Outcomes: map[string]Outcome{jobNodes: {Refused: "sbatch refuses the job: <none & \"nothing\">\x07"}}}
	page := paged(t, e.Judge())
	elements(t, page)
	if !strings.Contains(page, "&lt;none &amp; &#34;nothing&#34;&gt;\uFFFD") {
		t.Errorf("the refusal is not on the page:\n%s", page)
	}
}

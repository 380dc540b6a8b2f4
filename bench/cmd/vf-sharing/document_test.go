package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestADocumentKeepsTheOtherSections(t *testing.T) {
	one, two := choices[0].heading, choices[1].heading
	old := document(map[string]string{two: "of twelve\n\n| a | table |\n", one: "of three\n"})
	if strings.Index(old, "of three") > strings.Index(old, "of twelve") {
		t.Errorf("the sections are not in the order of the choices:\n%s", old)
	}
	sections := sectionsOf(old)
	if diff := cmp.Diff("of twelve\n\n| a | table |\n", sections[two]); diff != "" {
		t.Errorf("the section differs (-want +got):\n%s", diff)
	}
	sections[one] = "of three, again\n"
	if diff := cmp.Diff(strings.Replace(old, "of three\n", "of three, again\n", 1), document(sections)); diff != "" {
		t.Errorf("the document differs (-want +got):\n%s", diff)
	}
}

func TestChoices(t *testing.T) {
	tests := map[string]struct {
		names, want []string
		err         string
	}{
		"all without names":         {nil, []string{"three", "twelve", "latency"}, ""},
		"in the document's order":   {[]string{"latency", "three"}, []string{"three", "latency"}, ""},
		"an unknown one is refused": {[]string{"four"}, nil, "there is no experiment four; there are three, twelve, latency"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(tt.names)
			if text := errorText(err); text != tt.err {
				t.Errorf("the error is %q, want %q", text, tt.err)
			}
			var got []string
			for _, c := range chosen {
				got = append(got, c.name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("choices differ (-want +got):\n%s", diff)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

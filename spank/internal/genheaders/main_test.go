package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/jobspec"
)

func TestCommittedHeadersAreUpToDate(t *testing.T) {
	var options strings.Builder
	if err := writeOptions(&options, jobspec.Options); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"options.h": options.String(), "mark.h": mark()} {
		committed, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(committed)); diff != "" {
			t.Errorf("spank/%s is stale, run: go generate ./spank\n(-want +got):\n%s", file, diff)
		}
	}
}

func TestWriteRefusesWhatSlurmCannotShow(t *testing.T) {
	tests := map[string]jobspec.Option{
		"no name":         {Arg: "N", Usage: "x"},
		"no value":        {Name: "a", Usage: "x"},
		"no help":         {Name: "a", Arg: "N"},
		"a long name":     {Name: strings.Repeat("a", 76), Arg: "N", Usage: "x"},
		"a line break":    {Name: "a", Arg: "N", Usage: "x\ny"},
		"other alphabets": {Name: "a", Arg: "N", Usage: "größe"},
	}
	for name, option := range tests {
		t.Run(name, func(t *testing.T) {
			if err := writeOptions(&strings.Builder{}, []jobspec.Option{option}); err == nil {
				t.Errorf("writeOptions took %+v", option)
			}
		})
	}
}

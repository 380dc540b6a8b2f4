package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/jobspec"
)

func TestCommittedTableIsUpToDate(t *testing.T) {
	committed, err := os.ReadFile("../../options.h")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := write(&want, jobspec.Options); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(committed)); diff != "" {
		t.Errorf("spank/options.h is stale, run: go generate ./spank\n(-want +got):\n%s", diff)
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
			if err := write(&strings.Builder{}, []jobspec.Option{option}); err == nil {
				t.Errorf("write took %+v", option)
			}
		})
	}
}

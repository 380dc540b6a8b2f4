package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What squeue says of the jobs with the number 41: a job of its own, or an array.
const (
	aJob = `                  41|                  41|                 N/A|      6002|    n1
`
	anArray = `                  44|                  41|                   2|      6002|    n3
                  43|                  41|                   1|      6002|    n[1-2]
                  41|                  41|                   3|      6002|    n4
`
	anArrayThatWaits = `                  41|                  41|               4-9%2|      6002|
                  43|                  41|                   1|      6002|    n1
`
)

func TestRecordIn(t *testing.T) {
	tests := map[string]struct {
		text   string
		job    uint32
		name   string
		values []string
		err    string
	}{
		"a job":                               {text: aJob, job: 41, name: "41", values: []string{"6002", "n1"}},
		"the task with the array's number":    {text: anArray, job: 41, name: "41_3", values: []string{"6002", "n4"}},
		"another task of it":                  {text: anArray, job: 43, name: "41_1", values: []string{"6002", "n[1-2]"}},
		"tasks that wait":                     {text: anArrayThatWaits, job: 41, name: "41", values: []string{"6002", ""}},
		"a number that begins like another's": {text: strings.ReplaceAll(aJob, "  41|", " 410|"), job: 41, err: "squeue does not list it"},
		"a job that is gone":                  {text: "", job: 41, err: "squeue does not list it"},
		"another job":                         {text: aJob, job: 42, err: "squeue does not list it"},
		"a job twice":                         {text: aJob + aJob, job: 41, err: "squeue lists it twice"},
		"a line that is cut":                  {text: "41|41|N/A\n", job: 41, err: "squeue does not list it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			name, values, err := recordIn(tt.text, tt.job)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error = %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || name != tt.name {
				t.Errorf("name = %q, %v; want %q", name, err, tt.name)
			}
			if diff := cmp.Diff(tt.values, values); diff != "" {
				t.Errorf("values differ (-want +got):\n%s", diff)
			}
		})
	}
}

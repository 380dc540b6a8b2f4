package slurm

import (
	"bytes"
	"testing"
)

func TestRemarkFilter(t *testing.T) {
	const said = "srun: error: n1: task 0: Exited with exit code 3\n"
	tests := map[string]struct {
		writes []string
		early  string // passed on before the end
		want   string
	}{
		"srun's remark is left out":                 {[]string{said}, "", ""},
		"also in pieces":                            {[]string{"sr", "un: error: n1: task 0: Exited with", " exit code 3\n"}, "", ""},
		"the program's words pass":                  {[]string{"one\ntwo\n"}, "one\ntwo\n", "one\ntwo\n"},
		"around a remark, too":                      {[]string{"one\n" + said + "two\n"}, "one\ntwo\n", "one\ntwo\n"},
		"a prompt passes at once":                   {[]string{"name: "}, "name: ", "name: "},
		"other errors of srun pass":                 {[]string{"srun: error: n1: task 0: Killed\n"}, "srun: error: n1: task 0: Killed\n", "srun: error: n1: task 0: Killed\n"},
		"what only began like one comes at the end": {[]string{"srun: err"}, "", "srun: err"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			f := &RemarkFilter{Out: &out}
			for _, w := range tt.writes {
				if n, err := f.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != tt.early {
				t.Errorf("before the end %q, want %q", out.String(), tt.early)
			}
			if err := f.Close(); err != nil || out.String() != tt.want {
				t.Errorf("%q, %v; want %q", out.String(), err, tt.want)
			}
		})
	}
}

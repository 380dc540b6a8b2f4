package cpulist

import "testing"

func TestFormatAndParse(t *testing.T) {
	tests := map[string][]int{"": nil, "7": {7}, "0-1": {1, 0}, "0-3,8,10-11": {11, 8, 0, 1, 2, 10, 3}}
	for want, cpus := range tests {
		if got := Format(cpus); got != want {
			t.Errorf("%v is %q, want %q", cpus, got, want)
		}
		if want != "" && Format(Parse(want)) != want {
			t.Errorf("%q is read as %v", want, Parse(want))
		}
	}
}

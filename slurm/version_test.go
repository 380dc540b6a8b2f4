package slurm

import "testing"

func TestParseVersion(t *testing.T) {
	tests := map[string]struct {
		text string
		want string
		ok   bool
	}{
		"Debian's":              {"slurm-wlm 22.05.8", "22.05.8", true},
		"SchedMD's":             {"slurm 24.11.12", "24.11.12", true},
		"a release to come":     {"slurm 25.11.0-0rc1", "25.11.0", true},
		"nothing":               {"", "0.00.0", false},
		"something else's name": {"slurmd: error", "0.00.0", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseVersion(tt.text)
			if got.String() != tt.want || ok != tt.ok {
				t.Errorf("%s, %v; want %s, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

package environ

import "testing"

func TestVariables(t *testing.T) {
	env := []string{"PATHS=/opt", "PATH=/bin", "PATH=/usr/bin", "EMPTY=", "FLAGS=-O=2", "BARE"}
	tests := map[string]struct {
		value string
		has   bool
	}{
		"PATH":  {"/bin", true},
		"PATHS": {"/opt", true},
		"FLAGS": {"-O=2", true},
		"EMPTY": {"", true},
		"BARE":  {"", false},
		"OTHER": {"", false},
	}
	for name, want := range tests {
		if value, has := Value(env, name), Has(env, name); value != want.value || has != want.has {
			t.Errorf("%s is %q, %v; want %q, %v", name, value, has, want.value, want.has)
		}
	}
}

package httpsclient

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func file(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadLogin(t *testing.T) {
	tests := map[string]struct {
		text string
		mode os.FileMode
		want Login
		err  string
	}{
		"a token":                        {"hunter2\n", 0o600, Login{Secret: "hunter2"}, ""},
		"a user and a password":          {"cxi:pass:word \r\n", 0o640, Login{"cxi", "pass:word"}, ""},
		"nothing":                        {"\n", 0o600, Login{}, "does not have one line with a token or USER:PASSWORD"},
		"a password without its user":    {":hunter2\n", 0o600, Login{}, "does not have one line"},
		"two lines":                      {"cxi\nhunter2\n", 0o600, Login{}, "does not have one line"},
		"a file that everybody can open": {"hunter2\n", 0o644, Login{}, "every user can open it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ReadLogin(file(t, tt.text, tt.mode))
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v, %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
}

func TestAuthorities(t *testing.T) {
	if pool, err := Authorities(""); pool != nil || err != nil {
		t.Errorf("the system's: %v, %v", pool, err)
	}
	if _, err := Authorities(file(t, "no certificate", 0o644)); err == nil || !strings.Contains(err.Error(), "has no certificate in PEM format") {
		t.Errorf("error %v", err)
	}
	if _, err := Authorities("nowhere"); err == nil {
		t.Error("no error without the file")
	}
}

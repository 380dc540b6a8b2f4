// Package httpsclient has what the clients of a site's managers have in common: whose
// certificates they believe, and how they say who they are.
package httpsclient

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/slurm-v/slurm-v/internal/secret"
)

// Authorities reads the certificates of authorities, in PEM format. Without a file it returns
// nil, which stands for the system's.
func Authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM format", file)
	}
	return authorities, nil
}

// A Login says who asks.
type Login struct {
	User   string // "" with a token
	Secret string // token or password
}

// ReadLogin reads a file with one line: a token, or USER:PASSWORD. A token has no colon (RFC
// 6750, 2.1). It refuses a file that others could know or change.
func ReadLogin(file string) (Login, error) {
	text, err := secret.ReadFile(file)
	if err != nil {
		return Login{}, err
	}
	line := strings.TrimSpace(text)
	user, password, named := strings.Cut(line, ":")
	switch {
	case line == "" || strings.ContainsAny(line, "\r\n") || named && user == "":
		return Login{}, fmt.Errorf("%s does not have one line with a token or USER:PASSWORD", file)
	case named:
		return Login{user, password}, nil
	}
	return Login{Secret: line}, nil
}

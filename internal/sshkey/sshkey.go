// Package sshkey makes keys that live as long as a login or a job. They are
// values: whoever needs one as a file writes it.
package sshkey

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// A Pair is an ed25519 key.
type Pair struct {
	Public  string // one line of authorized_keys, without its end
	Private string // in OpenSSH's format
}

// New makes a key. The comment, a word, stands behind the public one.
func New(comment string) (Pair, error) {
	_, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		return Pair{}, fmt.Errorf("make an ssh key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(secret, comment)
	if err != nil {
		return Pair{}, fmt.Errorf("make an ssh key: %w", err)
	}
	private := string(pem.EncodeToMemory(block))
	public, err := Public(private)
	return Pair{Public: public + " " + comment, Private: private}, err
}

// Public returns the public key of a private one, as known_hosts has it behind
// the names: type and key.
func Public(private string) (string, error) {
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return "", fmt.Errorf("read a private ssh key: %w", err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

// An Announcement is what the agents of a job are told on standard input.
type Announcement struct {
	Authorized string `json:"authorized"` // the public key that is let in
	Host       string `json:"host"`       // the private key of an sshd that is started for it
}

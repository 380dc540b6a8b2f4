// Package sshkey makes keys that live as long as a login or a job. It does not write
// files.
package sshkey

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// A Pair is an ed25519 key pair.
type Pair struct {
	Public  string // one line of authorized_keys, without newline
	Private string // in OpenSSH's format
}

// New makes a key pair. The comment is a word at the end of the public key.
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

// Public returns the public key of a private one in the form of known_hosts without
// names: type and key.
func Public(private string) (string, error) {
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return "", fmt.Errorf("read a private ssh key: %w", err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

// An Announcement is sent to the agents of a job on their standard input.
type Announcement struct {
	Authorized string `json:"authorized"` // the public key to let in
	Host       string `json:"host"`       // the private host key of the sshd that is started for it
}

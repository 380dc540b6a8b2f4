package letter

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/slurm-v/slurm-v/internal/secret"
)

const keySize = 32 // bytes

// A Key seals and opens letters. The controllers and the nodes of a cluster have the same.
type Key struct{ bytes [keySize]byte }

// String keeps the secret out of messages.
func (Key) String() string { return "key of the fabric" }

// GoString keeps the secret out of messages.
func (k Key) GoString() string { return k.String() }

// NewKey returns the text of a new key file, without the end of the line: 64 hexadecimal
// digits.
func NewKey() string {
	var key [keySize]byte
	rand.Read(key[:]) // never fails: see crypto/rand
	return hex.EncodeToString(key[:])
}

// Load reads a key file. It refuses a file that others than its owner and its group can
// read or that others than its owner can write, and one that belongs to anybody but root
// and the process's own user.
func Load(path string) (Key, error) {
	text, err := secret.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("key of the fabric: %w; make one on the controller with slurmv fabric key, and copy it to all controllers and nodes", err)
	}
	if err != nil {
		return Key{}, fmt.Errorf("key of the fabric: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return Key{}, fmt.Errorf("key of the fabric: %s: %w", path, err)
	}
	return key, nil
}

// parseKey reads the text of a key file. Its errors do not quote the text.
func parseKey(text string) (key Key, err error) {
	text = strings.TrimRight(text, " \t\r\n")
	decoded, err := hex.DecodeString(text)
	if err != nil || len(decoded) != keySize {
		return Key{}, fmt.Errorf("a key is %d hexadecimal digits, as slurmv fabric key prints them, and this file has %d characters", 2*keySize, len(text))
	}
	copy(key.bytes[:], decoded)
	return key, nil
}

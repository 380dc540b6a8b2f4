package letter

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/journal"
)

// A letter is base64url of: the version, then what [cipher.NewGCMWithRandomNonce] makes of
// the value's JSON: a nonce of 12 bytes, the ciphertext, and a tag of 16 bytes.
const (
	version  = 1
	overhead = 1 + 12 + 16

	// maxText bounds a letter, in characters. The largest is a node's statement: it has
	// room for the last 400 jobs, or for 200 whose numbers are the longest.
	maxText = 6000
)

var (
	// ErrNone matches the error if there is no letter that this key opens for this subject.
	ErrNone = errors.New("no letter")

	// errTooLong matches the error of [Seal] if the letter would be longer than maxText.
	errTooLong = errors.New("too long for a comment of Slurm")
)

var encoding = base64.RawURLEncoding.Strict()

// ReservationSubject is the subject of a job's reservation.
func ReservationSubject(cluster string, job journal.ID) string {
	return "reservation " + cluster + " " + job.String()
}

// NodeSubject is the subject of a node's statement.
func NodeSubject(cluster, node string) string { return "node " + cluster + " " + node }

// Seal encrypts v, as JSON, into a letter for subject. Two letters of the same value differ.
func Seal(key Key, subject string, v any) (text string, err error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("seal the letter %q: %w", subject, err)
	}
	if n := sealedLen(plain); n > maxText {
		return "", fmt.Errorf("seal the letter %q: it would have %d characters, of at most %d: %w", subject, n, maxText, errTooLong)
	}
	aead, err := key.cipher(subject)
	if err != nil {
		return "", fmt.Errorf("seal the letter %q: %w", subject, err)
	}
	return encoding.EncodeToString(aead.Seal([]byte{version}, nil, plain, authenticated(subject))), nil
}

// sealedLen is how many characters the letter of this JSON has.
func sealedLen(plain []byte) int { return encoding.EncodedLen(overhead + len(plain)) }

// Open decrypts a letter for subject into v. The error matches [ErrNone] if the text is no
// letter of this key for this subject.
func Open(key Key, subject, text string, v any) error {
	plain, err := open(key, subject, text)
	if err != nil {
		return fmt.Errorf("open the letter %q: %w", subject, err)
	}
	if err := json.Unmarshal(plain, v); err != nil {
		return fmt.Errorf("open the letter %q: it says something else: %w", subject, err)
	}
	return nil
}

func open(key Key, subject, text string) ([]byte, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: %d characters are more than any letter has", ErrNone, len(text))
	}
	sealed, err := encoding.DecodeString(text)
	switch {
	case err != nil || len(sealed) < overhead:
		return nil, fmt.Errorf("%w: %d characters that are not a letter", ErrNone, len(text))
	case sealed[0] != version:
		return nil, fmt.Errorf("%w: it has the format %d, and this program knows %d: install the same release everywhere", ErrNone, sealed[0], version)
	}
	aead, err := key.cipher(subject)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, sealed[1:], authenticated(subject))
	if err != nil {
		return nil, fmt.Errorf("%w: it was sealed with another key or for somebody else, or changed; compare the key files of controller and node", ErrNone)
	}
	return plain, nil
}

// cipher returns the cipher for letters to subject. Each subject has a key of its own: with
// random nonces a key must not seal more than 2^32 letters (NIST SP 800-38D, 8.3), and a
// large cluster seals more than that within months.
func (k Key) cipher(subject string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, k.bytes[:], nil, "slurm-v letter\x00"+subject, keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// authenticated is what a letter proves beside its content.
func authenticated(subject string) []byte { return append([]byte{version}, subject...) }

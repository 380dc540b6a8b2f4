// Package cxitest has a libcxi without cards, for tests of what makes services on
// Slingshot cards. It is written in C and loaded as HPE's is.
//
// Settings say what the cards are like. They are variables FAKECXI_NAME of the
// environment, or else lines NAME=VALUE of the file with the library's name and ".conf",
// which is read at every call:
//
//	CARDS        how many there are; 4
//	VFS          how many virtual functions are listed after them; 0
//	UNLISTED     number of a card that is not listed, as one that cannot be opened
//	FIRST_IDS    the ID of the first service on each card, such as 11,11,12,11; 2
//	DEFAULT      1: the default service is enabled
//	PTES, TXQS, TGQS, EQS, CTS, LES, TLES, ACS    what a card has; as a Cassini 1
//	LE_POOLS, TLE_POOLS    pools that a card has; 15 and 4, of which the default service has one
//	TXQS_IN_USE, LES_IN_USE    what each service uses; 0, and for LEs 65535, which is unknown
//	ALLOC_ERRNO  number of the error with which all services are refused
//	BUSY         how often each service refuses to be destroyed; -1: always
//	BUSY_CARD    number of the only card that does so
//	BUSY_ERRNO   with which error; 16, which is EBUSY
//	GONE_ERRNO   the error with which a service is destroyed nevertheless
//	LIES         1: services are said to be destroyed and are not
//	GARBLED      1: cards have names that this release does not expect
//	LOG          1: the file with the library's name and ".log" gets a line for each service that
//	             is made or destroyed: nanoseconds since 1970, alloc or destroy, card, service, uid, VNIs
//
// The services are in the file with the library's name and ".state". To lose them, as by a
// restart of the node, remove it.
package cxitest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const name = "libcxi.so.1"

//go:embed testdata/fakecxi.c
var source string

// Build compiles the library into a directory and returns its path. The flags are for cc.
func Build(dir string, flags ...string) (lib string, err error) {
	lib = filepath.Join(dir, name)
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", lib}, flags...)
	cc := exec.Command("cc", append(args, "-x", "c", "-")...)
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the fake libcxi: %w\n%s", err, out)
	}
	return lib, nil
}

// A Fake is the library of one test, with cards of its own.
type Fake struct {
	Path     string
	t        testing.TB
	settings string
}

// New makes a library with these settings, each NAME=VALUE.
func New(t testing.TB, settings ...string) *Fake {
	t.Helper()
	library, err := once()
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{Path: filepath.Join(t.TempDir(), name), t: t}
	if err := os.WriteFile(f.Path, library, 0o700); err != nil {
		t.Fatal(err)
	}
	f.Set(settings...)
	return f
}

// once is the compiled library.
var once = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "fakecxi")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	lib, err := Build(dir)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(lib)
})

// Set adds settings. The later one of a name counts.
func (f *Fake) Set(settings ...string) {
	f.t.Helper()
	for _, s := range settings {
		f.settings += s + "\n"
	}
	if err := os.WriteFile(f.Path+".conf", []byte(f.settings), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// Reboot loses all services.
func (f *Fake) Reboot() {
	f.t.Helper()
	if err := os.Remove(f.Path + ".state"); err != nil {
		f.t.Fatal(err)
	}
}

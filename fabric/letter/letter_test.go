package letter

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func newKey(t testing.TB) Key {
	t.Helper()
	key, err := parseKey(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var (
	job         = journal.ID{Job: 4217, Restart: 1}
	subject     = ReservationSubject("deep", job)
	reservation = fabric.Reservation{
		Cluster: "deep", Job: job, UID: 6002,
		Grants:      []fabric.Grant{{Pool: "vni", Kind: fabric.VNI, Tags: []fabric.Tag{1027, 1028}}, {Pool: "vlan", Kind: fabric.VLAN, Why: "disabled by user request"}},
		Classes:     []fabric.Class{fabric.LowLatency},
		Collectives: &fabric.Collectives{Session: "deep-4217", Token: strings.Repeat("t", 64), URL: "https://fm.site:8000", Addrs: 4, MinNodes: 8},
	}
)

func seal(t testing.TB, key Key, subject string, v any) string {
	t.Helper()
	text, err := Seal(key, subject, v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestALetterArrives(t *testing.T) {
	key := newKey(t)
	text := seal(t, key, subject, reservation)
	var got fabric.Reservation
	if err := Open(key, subject, text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reservation, got); diff != "" {
		t.Errorf("reservation differs (-want +got):\n%s", diff)
	}
}

func TestALetterTellsNobodyElseAnything(t *testing.T) {
	key := newKey(t)
	first, second := seal(t, key, subject, reservation), seal(t, key, subject, reservation)
	if first == second {
		t.Error("two letters of the same reservation are equal")
	}
	plain, _ := json.Marshal(reservation)
	for _, secret := range []string{"1027", "tttt", "vni"} {
		sealed, _ := encoding.DecodeString(first)
		if !strings.Contains(string(plain), secret) || strings.Contains(string(sealed), secret) {
			t.Errorf("%q is in the reservation and not in its letter: no", secret)
		}
	}
}

// The first row opens; every other one differs from it in one thing.
func TestWhatDoesNotOpen(t *testing.T) {
	key := newKey(t)
	text := seal(t, key, subject, reservation)
	tests := map[string]struct {
		key     Key
		subject string
		text    string
		err     string // "" opens
	}{
		"the letter":             {key, subject, text, ""},
		"another key":            {newKey(t), subject, text, "no letter: it was sealed with another key or for somebody else, or changed"},
		"no key":                 {Key{}, subject, text, "no letter: it was sealed with another key"},
		"another job":            {key, ReservationSubject("deep", journal.ID{Job: 4218, Restart: 1}), text, "no letter: it was sealed with another key"},
		"the job's next run":     {key, ReservationSubject("deep", journal.ID{Job: 4217, Restart: 2}), text, "no letter: it was sealed with another key"},
		"another cluster":        {key, ReservationSubject("dee", job), text, "no letter: it was sealed with another key"},
		"a node of such a name":  {key, NodeSubject("deep", job.String()), text, "no letter: it was sealed with another key"},
		"a changed character":    {key, subject, changed(text, 60), "no letter: it was sealed with another key"},
		"a changed nonce":        {key, subject, changed(text, 5), "no letter: it was sealed with another key"},
		"a changed last byte":    {key, subject, changed(text, len(text)-3), "no letter: it was sealed with another key"},
		"one that is cut":        {key, subject, text[:len(text)-4], "no letter: it was sealed with another key"},
		"a newer format":         {key, subject, "Ag" + text[2:], "no letter: it has the format 2, and this program knows 1: install the same release everywhere"},
		"nothing":                {key, subject, "", "no letter: 0 characters that are not a letter"},
		"other words":            {key, subject, "back soon", "no letter: 9 characters that are not a letter"},
		"a blank after it":       {key, subject, text + " ", "no letter: "},
		"padding":                {key, subject, text + "=", "no letter: "},
		"more than a letter has": {key, subject, strings.Repeat("A", maxText+1), "no letter: 6001 characters are more than any letter has"},
		"something else":         {key, subject, seal(t, key, subject, []int{1}), "it says something else: json: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got fabric.Reservation
			err := Open(tt.key, tt.subject, tt.text, &got)
			if tt.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("open the letter %q: %s", tt.subject, tt.err)) {
				t.Errorf("error = %v, want %s", err, tt.err)
			}
			if want := strings.HasPrefix(tt.err, "no letter"); errors.Is(err, ErrNone) != want {
				t.Errorf("%v is ErrNone: %v", err, !want)
			}
			if diff := cmp.Diff(fabric.Reservation{}, got); diff != "" {
				t.Errorf("the error came with a reservation:\n%s", diff)
			}
		})
	}
}

// changed returns text with another character at i.
func changed(text string, i int) string {
	other := "B"
	if text[i] == 'B' {
		other = "C"
	}
	return text[:i] + other + text[i+1:]
}

func TestALetterHasABound(t *testing.T) {
	key := newKey(t)
	size := 0
	for ; ; size++ {
		text, err := Seal(key, subject, strings.Repeat("x", size+4000))
		if errors.Is(err, errTooLong) {
			break
		}
		if err != nil || len(text) > maxText {
			t.Fatalf("%d characters, error %v", len(text), err)
		}
		if err := Open(key, subject, text, new(string)); err != nil {
			t.Fatal(err)
		}
	}
	if size < 400 {
		t.Errorf("%d characters did not fit", size+4000)
	}
	if _, err := Seal(key, subject, func() {}); err == nil || errors.Is(err, errTooLong) {
		t.Errorf("a function was sealed: %v", err)
	}
}

// The job's owner must not gain by this key file, nor make the node believe another.
func TestKeyFile(t *testing.T) {
	dir, text := t.TempDir(), NewKey()
	write := func(name, text string, mode os.FileMode, uid int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, -1); err != nil {
			t.Skip("run as root: the test makes a file that belongs to another user")
		}
		return path
	}
	self := os.Geteuid()
	tests := map[string]struct {
		path string
		err  string
	}{
		"as slurmv fabric key makes it": {write("made", text+"\n", 0o640, self), ""},
		"for its owner alone":           {write("alone", text, 0o400, self), ""},
		"in capitals":                   {write("capitals", strings.ToUpper(text), 0o600, self), ""},
		"that is not there":             {filepath.Join(dir, "none"), "key of the fabric: open DIR/none: no such file or directory; make one on the controller with slurmv fabric key, and copy it to all controllers and nodes"},
		"that everybody reads":          {write("read", text, 0o644, self), "key of the fabric: DIR/read has the mode 0644, with which every user can open it: chmod 0640 DIR/read, and replace the secret in it"},
		"that everybody writes":         {write("written", text, 0o602, self), "key of the fabric: DIR/written has the mode 0602, with which every user can open it"},
		"that its group writes":         {write("group", text, 0o660, self), "key of the fabric: DIR/group has the mode 0660, with which its group can change it: chmod 0640 DIR/group"},
		"of another user":               {write("user", text, 0o600, 6002), "key of the fabric: DIR/user belongs to user 6002, who could change it: chown root DIR/user"},
		"that is short":                 {write("short", text[1:], 0o600, self), "key of the fabric: DIR/short: a key is 64 hexadecimal digits, as slurmv fabric key prints them, and this file has 63 characters"},
		"that is long":                  {write("long", text+"00", 0o600, self), "key of the fabric: DIR/long: a key is 64 hexadecimal digits"},
		"that is empty":                 {write("empty", "", 0o600, self), "key of the fabric: DIR/empty: a key is 64 hexadecimal digits, as slurmv fabric key prints them, and this file has 0 characters"},
		"of other digits":               {write("digits", "x"+text[1:], 0o600, self), "key of the fabric: DIR/digits: a key is 64 hexadecimal digits"},
		"that is a directory":           {dir, "key of the fabric: DIR is not a file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Load(tt.path)
			if want := strings.ReplaceAll(tt.err, "DIR", dir); want == "" != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error = %v, want %s", err, want)
			}
			if err != nil && strings.Contains(err.Error(), text[2:62]) {
				t.Errorf("the error says the key: %v", err)
			}
		})
	}
}

func TestBothEndsReadTheSameFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(NewKey()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	controller, err1 := Load(path)
	node, err2 := Load(path)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := Open(node, subject, seal(t, controller, subject, 7), new(int)); err != nil {
		t.Error(err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", node, &node, node, node); strings.ContainsAny(text, "[{") {
		t.Errorf("a message shows the key: %s", text)
	}
}

func FuzzOpen(f *testing.F) {
	key := newKey(f)
	f.Add(seal(f, key, subject, 7))
	f.Add("AQ")
	f.Add(strings.Repeat("A", 39))
	f.Fuzz(func(t *testing.T, text string) {
		other := newKey(t)
		if err := Open(other, subject, text, new(int)); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// Each of the two ways that bind a letter to its subject does so alone.
func TestALetterProvesItsSubject(t *testing.T) {
	if a, b := authenticated(subject), authenticated(subject+"x"); string(a) == string(b) {
		t.Errorf("letters to two subjects prove the same: %q", a)
	}
}

func TestASubjectHasAKeyOfItsOwn(t *testing.T) {
	key := newKey(t)
	seal, err1 := key.cipher(subject)
	other, err2 := key.cipher(subject + "x")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	sealed := seal.Seal(nil, nil, []byte("7"), nil)
	if _, err := seal.Open(nil, nil, sealed, nil); err != nil {
		t.Error(err)
	}
	if _, err := other.Open(nil, nil, sealed, nil); err == nil {
		t.Error("another subject's key opens it")
	}
}

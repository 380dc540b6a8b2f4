package letter

import (
	"errors"
	"strings"
	"testing"
)

// The shortest, some and the longest text that may be a letter.
var (
	one   = strings.Repeat("A", 39)
	two   = strings.Repeat("b-_9", 20)
	whole = strings.Repeat("Z", maxText)
)

func TestBlocks(t *testing.T) {
	tests := map[string]struct {
		comment string
		text    string // "" if there is none
		words   string // without the letters
	}{
		"nothing":                       {"", "", ""},
		"a letter":                      {Prefix + one, one, ""},
		"a letter after words":          {"ask bob " + Prefix + one, one, "ask bob"},
		"words added to a letter":       {Prefix + one + ",ask bob", one, "ask bob"},
		"a letter among words":          {"ask bob " + Prefix + one + " or eve", one, "ask bob or eve"},
		"a letter between commas":       {"ask bob," + Prefix + one + ",or eve", one, "ask bob,or eve"},
		"two letters":                   {Prefix + one + " " + Prefix + two, one, ""},
		"two letters among words":       {"a " + Prefix + one + " b " + Prefix + two + " c", one, "a b c"},
		"the longest":                   {"a " + Prefix + whole, whole, "a"},
		"longer than the longest":       {"a " + Prefix + whole + "Z", "", "a " + Prefix + whole + "Z"},
		"shorter than letters are":      {Prefix + one[1:], "", Prefix + one[1:]},
		"the site's remark on us":       {"slurm-v: see ticket 17", "", "slurm-v: see ticket 17"},
		"the prefix alone":              {Prefix, "", Prefix},
		"prefixes":                      {Prefix + Prefix + one, "", Prefix + Prefix + one},
		"within a word":                 {"x" + Prefix + one, "", "x" + Prefix + one},
		"a word that goes on":           {Prefix + one + "=", "", Prefix + one + "="},
		"blanks that are the site's":    {"  a  " + Prefix + one + "  b  ", one, "  a   b  "},
		"a line of its own":             {"a\n" + Prefix + one + "\nb", one, "a\nb"},
		"not quite the prefix":          {"slurm-v;" + one, "", "slurm-v;" + one},
		"what would become one of both": {"slurm-v " + Prefix + one + ":" + one, "", "slurm-v " + Prefix + one + ":" + one},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if text, ok := Block(tt.comment); text != tt.text || ok != (tt.text != "") {
				t.Errorf("letter %q, %v", text, ok)
			}
			if words := DropBlock(tt.comment); words != tt.words {
				t.Errorf("words = %q, want %q", words, tt.words)
			}
			holdsOneLetter(t, tt.comment)
		})
	}
}

// holdsOneLetter puts a letter into the comment.
func holdsOneLetter(t *testing.T, comment string) {
	t.Helper()
	words, put := DropBlock(comment), PutBlock(comment, two)
	if text, ok := Block(put); text != two || !ok {
		t.Errorf("%q has the letter %q", put, text)
	}
	if again := PutBlock(put, one); again != PutBlock(comment, one) {
		t.Errorf("%q becomes %q with the next letter, not %q", comment, again, PutBlock(comment, one))
	}
	if got := DropBlock(put); got != words {
		t.Errorf("%q without its letter is %q, not %q", put, got, words)
	}
	if _, ok := Block(words); ok {
		t.Errorf("%q still has a letter", words)
	}
}

// Somebody may copy other texts into the comment, before the letter or after it.
func TestFind(t *testing.T) {
	key := newKey(t)
	mine := Prefix + seal(t, key, subject, 7)
	forged := Prefix + "AQ" + one + "A"
	others := Prefix + seal(t, key, NodeSubject("deep", "n1"), 8)
	tests := map[string]struct {
		comment string
		err     string // "" finds it
	}{
		"alone":                      {mine, ""},
		"among words":                {"ask bob " + mine + ",or eve", ""},
		"after a forged one":         {Prefix + one + " " + mine, ""},
		"after another's":            {others + " " + mine, ""},
		"before a forged one":        {mine + " " + Prefix + one, ""},
		"no words":                   {"", "no letter: the comment has none"},
		"other words":                {"slurm-v: ask bob", "no letter: the comment has none"},
		"a forged one":               {"ask " + forged, "no letter: it was sealed with another key"},
		"something that looks so":    {"ask " + Prefix + one, "no letter: it has the format 0"},
		"another's":                  {others, "no letter: it was sealed with another key"},
		"after more than any forger": {strings.Repeat(forged+" ", maxBlocks) + mine, "no letter: it was sealed with another key"},
		"after as many as allowed":   {strings.Repeat(Prefix+one+" ", maxBlocks-1) + mine, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got int
			err := Find(key, subject, tt.comment, &got)
			if tt.err == "" {
				if err != nil || got != 7 {
					t.Errorf("%d, %v", got, err)
				}
				return
			}
			if want := `open the letter "` + subject + `": ` + tt.err; err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, ErrNone) {
				t.Errorf("error = %v, want %s", err, want)
			}
		})
	}
}

// A comment can be as long as slurmctld takes. The worst ones make every byte a beginning: a
// search that begins anew at each of them would not end within the tests' time.
func TestLongCommentsAreRead(t *testing.T) {
	for _, part := range []string{Prefix, Prefix + "A", Prefix + one, Prefix + one + " ", "slurm-v"} {
		comment := strings.Repeat(part, 16<<20/len(part))
		if words := DropBlock(comment); len(words) > len(comment) {
			t.Errorf("%.20q: %d bytes become %d", part, len(comment), len(words))
		}
	}
}

func FuzzBlock(f *testing.F) {
	for _, comment := range []string{"", "ask bob", Prefix + one, "a," + Prefix + one + ",b", Prefix + Prefix + one, "slurm-v " + Prefix + one + ":" + one} {
		f.Add(comment)
	}
	f.Fuzz(func(t *testing.T, comment string) {
		holdsOneLetter(t, comment)
		if _, ok := Block(comment); !ok && DropBlock(comment) != comment {
			t.Errorf("%q lost words", comment)
		}
	})
}

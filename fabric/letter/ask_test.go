package letter

import (
	"slices"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/journal"
)

func TestAsks(t *testing.T) {
	first, second := journal.ID{Job: 7}, journal.ID{Job: 4217, Restart: 1}
	for name, words := range map[string]string{
		"a node without words": "", "words of the site": "new fans,  two  blanks", "a word like ours": "slurm-v-asks:nothing slurm-v-asks:",
	} {
		t.Run(name, func(t *testing.T) {
			comment := PutAsks(PutAsks(words, []journal.ID{first}), []journal.ID{first, second})
			if got := Asked(comment); !slices.Equal(got, []journal.ID{first, second}) {
				t.Errorf("%q asks for %v", comment, got)
			}
			sealed := PutBlock(comment, "AAAA")
			if got := Asked(sealed); !slices.Equal(got, []journal.ID{first, second}) {
				t.Errorf("with a letter %q asks for %v", sealed, got)
			}
			if got := DropAsks(PutAsks(PutBlock(words, strings.Repeat("A", 60)), []journal.ID{first})); got != words {
				t.Errorf("%q keeps a letter beside its asks", got)
			}
			if got := DropAsks(comment); got != words {
				t.Errorf("%q without its asks is %q, want %q", comment, got, words)
			}
			if got := Asked(words); len(got) > 0 {
				t.Errorf("%q asks for %v", words, got)
			}
		})
	}
}

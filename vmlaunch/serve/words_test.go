package serve

import (
	"strconv"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

func TestFirst(t *testing.T) {
	var w words
	for i, want := range []bool{true, false, false} {
		if first, err := w.first("a run"); first != want || err != nil {
			t.Errorf("time %d: first is %v, %v, want %v", i+1, first, err, want)
		}
	}
	if first, _ := w.first("another run"); !first {
		t.Error("another word was said before")
	}
	for _, bad := range []string{"", strings.Repeat("x", nodeagent.MaxWord+1)} {
		if _, err := w.first(bad); err == nil {
			t.Errorf("a word of %d bytes was taken", len(bad))
		}
	}
	for i := range 3 * maxWords {
		_, _ = w.first(strconv.Itoa(i))
	}
	if len(w.said) != maxWords {
		t.Errorf("%d words are remembered, want the last %d", len(w.said), maxWords)
	}
	if first, _ := w.first(strconv.Itoa(3*maxWords - 1)); first {
		t.Error("the last word was forgotten")
	}
}

package serve

import (
	"fmt"
	"slices"
	"sync"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// maxWords bounds how many words are remembered. A run says one at its end.
const maxWords = 1000

// words are what tasks of the job on this node have said with op first, the oldest first. They let one task of a node do
// what would be the same from all of them.
type words struct {
	mu   sync.Mutex
	said []string
}

// first reports whether the word is new, and remembers it.
func (w *words) first(word string) (bool, error) {
	if word == "" || len(word) > nodeagent.MaxWord {
		return false, fmt.Errorf("a word has 1 to %d bytes, not %d", nodeagent.MaxWord, len(word))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.said, word) {
		return false, nil
	}
	if len(w.said) == maxWords {
		w.said = slices.Delete(w.said, 0, 1)
	}
	w.said = append(w.said, word)
	return true, nil
}

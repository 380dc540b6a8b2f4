package letter

import (
	"errors"
	"fmt"
	"iter"
	"strings"
)

// Prefix begins a letter in a comment.
const Prefix = "slurm-v:"

// maxBlocks bounds how many texts of a comment [Find] tries to open.
const maxBlocks = 8

// PutBlock returns the comment with this letter instead of those that it has. The site's own
// words stay as they are.
func PutBlock(comment, text string) string {
	words := DropBlock(comment)
	if words == "" {
		return Prefix + text
	}
	return words + " " + Prefix + text
}

// Block returns the first letter in the comment.
func Block(comment string) (text string, ok bool) {
	for b := range blocks(comment) {
		return b.text(comment), true
	}
	return "", false
}

// DropBlock returns the comment without letters: the site's own words.
func DropBlock(comment string) string {
	var words strings.Builder
	from := 0
	for b := range blocks(comment) {
		first, last := b.withSeparator(comment, from)
		words.WriteString(comment[from:first])
		from = last
	}
	words.WriteString(comment[from:])
	return words.String()
}

// Find opens the letter for subject in a comment into v. The error matches [ErrNone] and
// says why, if there is none.
func Find(key Key, subject, comment string, v any) error {
	err := fmt.Errorf("open the letter %q: %w: the comment has none", subject, ErrNone)
	tried := 0
	for b := range blocks(comment) {
		if err = Open(key, subject, b.text(comment), v); !errors.Is(err, ErrNone) {
			return err
		}
		if tried++; tried == maxBlocks {
			break
		}
	}
	return err
}

// A block is the place of a letter in a comment: its first byte, and the byte after it.
type block struct{ first, last int }

func (b block) text(comment string) string { return comment[b.first+len(Prefix) : b.last] }

// withSeparator is the block's place with the separator that keeps it apart from the site's
// words: the one before it or, where it comes first, the one after it. What lies before from
// belongs to another block.
func (b block) withSeparator(comment string, from int) (first, last int) {
	switch {
	case b.first > from:
		return b.first - 1, b.last
	case b.first == 0 && b.last < len(comment):
		return b.first, b.last + 1
	}
	return b.first, b.last
}

// blocks yields the places of all letters in a comment, in order. It looks at no byte more
// than twice.
func blocks(comment string) iter.Seq[block] {
	return func(yield func(block) bool) {
		for at := 0; ; {
			i := strings.Index(comment[at:], Prefix)
			if i < 0 {
				return
			}
			b := block{first: at + i, last: at + i + len(Prefix)}
			b.last += letters(comment[b.last:])
			at = b.last
			if b.plausible(comment) && !yield(b) {
				return
			}
		}
	}
}

// plausible reports whether it is a word of its own and as long as letters are: "slurm-v:"
// before a few words of the site is none.
func (b block) plausible(comment string) bool {
	n := b.last - b.first - len(Prefix)
	if n < encoding.EncodedLen(overhead) || n > maxText {
		return false
	}
	return (b.first == 0 || separates(comment[b.first-1])) && (b.last == len(comment) || separates(comment[b.last]))
}

// separates reports whether words end at c. People also write a comma after a word.
func separates(c byte) bool { return strings.IndexByte(" ,;\t\n", c) >= 0 }

// letters counts the characters of base64url at the beginning of text.
func letters(text string) int {
	return len(text) - len(strings.TrimLeft(text, alphabet))
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

package controller

import (
	"strings"

	"github.com/slurm-v/slurm-v/fabric/letter"
)

// The marks around the sentence that says in a job's AdminComment why it did not start. Its
// owner and administrators see it there, and slurmctld logs it; it logs nothing of what
// PrologSlurmctld prints (_run_script in slurmscriptd.c).
const (
	failureBegin = "[slurm-v: "
	failureEnd   = "]"
)

// withFailure returns the comment with the sentence instead of an older one or of a letter.
// The site's own words stay.
func withFailure(comment, sentence string) string {
	words := withoutFailure(letter.DropBlock(comment))
	sentence = strings.NewReplacer("[", "(", "]", ")", "\n", "; ").Replace(sentence)
	return joined(words, failureBegin+sentence+failureEnd)
}

// withLetter returns the comment with this letter instead of an older one or of a sentence.
func withLetter(comment, text string) string { return letter.PutBlock(withoutFailure(comment), text) }

func withoutFailure(comment string) string {
	for {
		before, rest, found := strings.Cut(comment, failureBegin)
		if !found {
			return comment
		}
		_, after, _ := strings.Cut(rest, failureEnd)
		comment = joined(strings.TrimSpace(before), strings.TrimSpace(after))
	}
}

func joined(a, b string) string { return strings.TrimSpace(a + " " + b) }

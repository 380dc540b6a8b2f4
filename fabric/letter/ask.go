package letter

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/journal"
)

// askPrefix begins a word in a node's Comment by which the controller asks the node to confirm a run.
// It is not sealed: a node confirms nothing but the truth, whoever asks.
const askPrefix = "slurm-v-asks:"

// PutAsks returns the comment with a word for each run that it does not ask for yet, and without
// letters. The node may write a newer letter before the controller writes this comment: an older one
// that came back could confirm a run that has its tags again. The node's answer has a letter.
func PutAsks(comment string, runs []journal.ID) string {
	comment = DropBlock(comment)
	for _, run := range runs {
		if !slices.Contains(Asked(comment), run) {
			comment = strings.TrimLeft(comment+" "+askPrefix+run.String(), " ")
		}
	}
	return comment
}

// Asked returns the runs for which a comment asks.
func Asked(comment string) (runs []journal.ID) {
	for word := range strings.FieldsSeq(comment) {
		text, found := strings.CutPrefix(word, askPrefix)
		if run, err := journal.ParseID(text); found && err == nil {
			runs = append(runs, run)
		}
	}
	return runs
}

var asks = regexp.MustCompile(`(^| )` + askPrefix + `[0-9]+\.[0-9]+\b`)

// DropAsks returns the comment without such words. Everything else stays as it is.
func DropAsks(comment string) string {
	return strings.TrimPrefix(asks.ReplaceAllString(comment, ""), " ")
}

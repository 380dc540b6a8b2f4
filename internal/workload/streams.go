package workload

import (
	"fmt"
	"io"
	"strings"
)

// StreamsStatus is the exit status of [Streams].
const StreamsStatus = 23

// Streams answers standard input in capitals, and says on standard error how much it was.
// It returns the exit status.
func Streams(in io.Reader, out, words io.Writer) int {
	text, err := io.ReadAll(in)
	if err != nil {
		fmt.Fprintln(words, err)
		return 1
	}
	fmt.Fprint(out, strings.ToUpper(string(text)))
	fmt.Fprintf(words, "%d bytes on standard input\n", len(text))
	return StreamsStatus
}

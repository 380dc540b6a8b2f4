package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// meter copies a stream by lines. For each line it logs the time and the length. For a
// line that is part of a message it also logs which message of which node it is:
//
//	NANOSECONDS STREAM BYTES NODE KIND SEQUENCE PART/PARTS
func meter(stream, log string) error {
	file, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if len(line) > 0 {
			fmt.Fprintln(file, time.Now().UnixNano(), stream, len(line), frame(line))
			if _, err := io.WriteString(os.Stdout, line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// frame returns the head of a message's line without its magic; "" for other lines.
func frame(line string) string {
	words := strings.Fields(line)
	if len(words) != 6 || words[0] != "@slurmv1" {
		return ""
	}
	return strings.Join(words[1:5], " ")
}

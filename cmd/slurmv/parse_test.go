package main

import (
	"io"
	"strings"
	"testing"
)

func TestKeyReaderEndsWithItsKey(t *testing.T) {
	left := false
	r := &keyReader{in: strings.NewReader("ls\r\x1dnever"), leave: func() { left = true }}
	text, err := io.ReadAll(r)
	if err != nil || string(text) != "ls\r" || !left {
		t.Errorf("%q, %v, left %v", text, err, left)
	}
}

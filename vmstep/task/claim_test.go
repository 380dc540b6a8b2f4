package task

import (
	"context"
	"net"
	"testing"
	"time"
)

func TestUntilRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		untilRefused(t.Context(), l.Addr().String(), time.Millisecond)
		close(done)
	}()
	for range 3 { // it goes on asking
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	select {
	case <-done:
		t.Fatal("somebody listens")
	default:
	}
	l.Close()
	<-done

	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	untilRefused(ctx, "", time.Millisecond) // nobody to ask: until the end
}

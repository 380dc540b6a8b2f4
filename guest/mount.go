package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxMessage bounds a message of FUSE, in bytes: it has up to 128 KiB of a file's data.
// See struct fuse_in_header and fuse_out_header in Linux, include/uapi/linux/fuse.h: each
// message begins with its length, in the byte order of the machine.
const maxMessage = 128<<10 + 8<<10

// minMessage is the length of a FUSE answer without data.
const minMessage = 16

// ErrNoFUSE matches the error of [Session.Mount] if the guest's kernel has no FUSE.
var ErrNoFUSE = errors.New("the image's kernel has no FUSE")

// noFUSE is an [ErrNoFUSE] in the guest's words.
type noFUSE struct{ error }

func (noFUSE) Is(target error) bool { return target == ErrNoFUSE }

// A PacketStream carries messages between the guest's kernel and a server on the host: those of
// one mounted directory, or those of a network interface.
type PacketStream struct {
	st     *stream
	length func(head []byte) (int, error)
}

// Mount makes the guest mount a directory whose server is at the other end of the returned
// stream. The guest unmounts it when the stream ends.
func (s *Session) Mount(ctx context.Context, m Mount) (*PacketStream, error) {
	st, err := s.open(ctx, Header{Kind: kindMount, Mount: &m})
	if err != nil {
		return nil, fmt.Errorf("mount %s in the VM: %w", m.Path, err)
	}
	a, err := s.answer(ctx, st)
	if a.NoFUSE {
		err = noFUSE{err}
	}
	if err != nil {
		return nil, fmt.Errorf("mount %s in the VM: %w", m.Path, err)
	}
	return &PacketStream{st, messageLength}, nil
}

// Serve passes messages between the guest and server, whose reads and writes are whole
// messages, until either ends. It closes both.
func (p *PacketStream) Serve(server io.ReadWriteCloser) error {
	defer p.st.Finish()
	return passMessages(p.st, server, p.length)
}

// mount mounts a directory and passes messages between the kernel and the stream, until the
// stream ends.
func (s *Server) mount(ctx context.Context, st *stream, m *Mount) {
	defer st.Finish()
	if m == nil {
		_ = writeLine(st, answer{Error: "mount a directory: none is named"})
		return
	}
	kernel, err := s.Machine.Mount(ctx, *m)
	if err != nil {
		s.log().Error("mount failed", "path", m.Path, "err", err)
		_ = writeLine(st, answer{Error: err.Error(), NoFUSE: errors.Is(err, ErrNoFUSE)})
		return
	}
	stop := context.AfterFunc(ctx, st.Abandon)
	defer stop()
	if err := writeLine(st, answer{}); err != nil {
		_ = kernel.Close()
		return
	}
	err = passMessages(st, kernel, messageLength)
	s.log().Info("a mount has ended", "path", m.Path, "err", err)
}

// passMessages copies messages between a stream and a device that takes and gives a whole
// message each time. length tells a message's length by its first four bytes. passMessages
// returns why it ended.
func passMessages(st *stream, device io.ReadWriteCloser, length func([]byte) (int, error)) error {
	var once sync.Once
	var cause error
	end := func(err error) {
		once.Do(func() {
			cause = err
			st.Abandon()
			_ = device.Close()
		})
	}
	var both sync.WaitGroup
	both.Go(func() { end(toStream(st, device)) })
	both.Go(func() { end(fromStream(device, st, length)) })
	both.Wait()
	return cause
}

func toStream(st *stream, device io.Reader) error {
	buffer := make([]byte, maxMessage)
	for {
		n, err := device.Read(buffer)
		if err != nil {
			return err
		}
		if _, err := st.Write(buffer[:n]); err != nil {
			return err
		}
	}
}

func fromStream(device io.Writer, st *stream, length func([]byte) (int, error)) error {
	buffer := make([]byte, maxMessage)
	for {
		message, err := readMessage(st, buffer, length)
		if err != nil {
			return noEOF(err)
		}
		if _, err := device.Write(message); err != nil {
			return err
		}
	}
}

// readMessage reads one message into buffer.
func readMessage(r io.Reader, buffer []byte, length func([]byte) (int, error)) ([]byte, error) {
	if _, err := io.ReadFull(r, buffer[:4]); err != nil {
		return nil, err
	}
	n, err := length(buffer[:4])
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(r, buffer[4:n])
	return buffer[:n], err
}

// messageLength reads the length of a FUSE message from its first bytes.
func messageLength(head []byte) (int, error) {
	length := binary.NativeEndian.Uint32(head)
	if length < minMessage || length > maxMessage {
		return 0, fmt.Errorf("a FUSE message of %d bytes", length)
	}
	return int(length), nil
}

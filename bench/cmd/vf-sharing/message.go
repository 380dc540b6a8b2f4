package main

import (
	"encoding/binary"

	"github.com/slurm-v/slurm-v/internal/netlab"
)

const (
	headers  = 14 + 20 + 8 // Ethernet, IPv4, UDP
	mostData = 1500 - 20 - 8
)

// A message is UDP data, cut into frames. Each frame begins with the message's number and
// its size in bytes.
type message struct{ number, bytes uint32 }

func (m message) frames(flow netlab.Flow) (frames [][]byte) {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, m.number), m.bytes)
	for left := int(m.bytes); left > 0; left -= mostData {
		data := make([]byte, max(min(left, mostData), len(head)))
		copy(data, head)
		frames = append(frames, flow.UDP(data))
	}
	return frames
}

// messageOf returns the message of which a frame is a part.
func messageOf(frame []byte) (m message, ok bool) {
	if len(frame) < headers+8 {
		return m, false
	}
	return message{binary.BigEndian.Uint32(frame[headers:]), binary.BigEndian.Uint32(frame[headers+4:])}, true
}

func (m message) parts() int { return (int(m.bytes) + mostData - 1) / mostData }

// An inbox puts the messages for a guest together. A message that lacks a frame is forgotten
// when the next one begins.
type inbox struct {
	guest *netlab.Guest
	now   message
	have  int // frames of it
}

// take returns the message that the frame completes.
func (b *inbox) take(frame []byte) (m message, whole bool) {
	m, ok := messageOf(frame)
	if !ok || !isFor(b.guest, frame) {
		return m, false
	}
	if m != b.now {
		b.now, b.have = m, 0
	}
	b.have++
	return m, b.have == m.parts()
}

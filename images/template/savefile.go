package template

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// libvirt's save file is a header of 23 words, the domain's description with a zero byte
// after it, an optional "cookie" in XML with another zero byte, and QEMU's stream. libvirt
// writes words in the byte order of the machine.
const (
	saveMagic   = "LibvirtQemudSave"
	saveVersion = 2
	saveHeader  = len(saveMagic) + 19*4

	// maxSaveText bounds description and cookie together, in bytes.
	maxSaveText = 4 << 20
)

// A SaveFile is the part before QEMU's stream in the file of a domain that libvirt has
// saved.
type SaveFile struct {
	XML    []byte // the domain's description
	Cookie []byte // further data of libvirt's; may be empty
	Length int64  // of this part in the file: the stream begins there
}

// ReadSaveFile reads up to the beginning of the stream.
func ReadSaveFile(r io.Reader) (SaveFile, error) {
	s, err := readSaveFile(r)
	if err != nil {
		return SaveFile{}, fmt.Errorf("read a saved VM: %w", err)
	}
	return s, nil
}

func readSaveFile(r io.Reader) (SaveFile, error) {
	head := make([]byte, saveHeader)
	if _, err := io.ReadFull(r, head); err != nil {
		return SaveFile{}, err
	}
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(head[len(saveMagic)+4*i:]) }
	version, length, compressed, cookie := word(0), word(1), word(3), word(4)
	switch {
	case string(head[:len(saveMagic)]) != saveMagic:
		return SaveFile{}, errors.New("libvirt did not complete it")
	case version != saveVersion:
		return SaveFile{}, fmt.Errorf("libvirt's format %d is not known", version)
	case compressed != 0:
		return SaveFile{}, errors.New("it is compressed (save_image_format in libvirt's qemu.conf)")
	case length > maxSaveText || cookie > length:
		return SaveFile{}, fmt.Errorf("a description of %d bytes with a cookie at %d", length, cookie)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return SaveFile{}, err
	}
	s := SaveFile{XML: text, Length: int64(saveHeader) + int64(length)}
	if cookie > 0 {
		s.XML, s.Cookie = text[:cookie], upToZero(text[cookie:])
	}
	s.XML = upToZero(s.XML)
	return s, nil
}

// upToZero returns a text up to its first zero byte.
func upToZero(text []byte) []byte {
	before, _, _ := bytes.Cut(text, []byte{0})
	return before
}

// WriteTo writes this part; with QEMU's stream after it, it is a save file. The guest runs
// as soon as it is restored.
func (s SaveFile) WriteTo(w io.Writer) (int64, error) {
	text := append(bytes.Clone(s.XML), 0)
	cookie := 0
	if len(s.Cookie) > 0 {
		cookie = len(text)
		text = append(append(text, s.Cookie...), 0)
	}
	out := []byte(saveMagic)
	for _, word := range []int{saveVersion, len(text), 1, 0, cookie} {
		out = binary.NativeEndian.AppendUint32(out, uint32(word))
	}
	out = append(out, make([]byte, saveHeader-len(out))...)
	n, err := w.Write(append(out, text...))
	return int64(n), err
}

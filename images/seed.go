package images

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"os"

	"github.com/slurm-v/slurm-v/internal/owner"
)

// MaxUserData bounds the user's cloud-init data, in bytes.
const MaxUserData = 64 << 10

// A Seed is what a VM finds on its seed disk: the NoCloud data source of
// cloud-init, and slurmv-guest.
type Seed struct {
	InstanceID  string // unlike that of any other VM; cloud-init configures a VM anew when it changes
	Hostname    string
	GuestBinary string // path of slurmv-guest on this node
	UserData    []byte // handed to cloud-init as it is; may be empty
}

// The label and the names by which cloud-init and start-guest.sh know the disk.
const (
	seedLabel = "cidata"
	guestName = "slurmv-guest"
)

// startGuest runs in the VM.
//
//go:embed start-guest.sh
var startGuest string

// ReadUserData reads the user's file for cloud-init with his own rights.
func ReadUserData(ctx context.Context, path string, as owner.Owner) ([]byte, error) {
	file, _, err := open(ctx, as, "user data", path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxUserData+1))
	switch {
	case err != nil:
		return nil, &Error{What: "user data", Path: path, Reason: "cannot be read", Err: err}
	case len(data) > MaxUserData:
		return nil, &Error{What: "user data", Path: path, Reason: fmt.Sprintf("is larger than %d KiB", MaxUserData>>10)}
	}
	return data, nil
}

// WriteSeed writes the seed disk of one VM to path, which must not exist. The
// file is as's, 0600, as large as slurmv-guest and some KiB, and is copied from
// file to file: any number may be written at once.
func WriteSeed(path string, seed Seed, as owner.Owner) error {
	if err := writeSeed(path, seed, as); err != nil {
		return fmt.Errorf("write seed disk %s: %w", printable(path), err)
	}
	return nil
}

func writeSeed(path string, seed Seed, as owner.Owner) error {
	files, err := seed.files()
	if err != nil {
		return err
	}
	guest, err := os.Open(seed.GuestBinary)
	if err != nil {
		return err
	}
	defer guest.Close()
	info, err := guest.Stat()
	if err != nil {
		return err
	}
	files = append(files, isoFile{name: guestName, size: info.Size(), data: guest, executable: true})
	disk, err := createFor(path, as)
	if err != nil {
		return err
	}
	err = writeISO(disk, seedLabel, files)
	if closed := disk.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

// files returns the text files of the disk.
func (s Seed) files() ([]isoFile, error) {
	if len(s.UserData) > MaxUserData {
		return nil, fmt.Errorf("user data of %d bytes is larger than %d", len(s.UserData), MaxUserData)
	}
	// In mode "local" cloud-init does its work before there is a network, which
	// comes up only after slurmv-guest has been told its addresses. JSON is YAML.
	meta, err := json.Marshal(map[string]string{
		"instance-id": s.InstanceID, "local-hostname": s.Hostname, "dsmode": "local",
	})
	if err != nil {
		return nil, err
	}
	var files []isoFile
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"meta-data", meta},
		{"network-config", []byte(`{"config":"disabled"}`)}, // slurmv-guest does it
		{"user-data", s.UserData},
		{"vendor-data", vendorData()},
	} {
		files = append(files, isoFile{name: f.name, size: int64(len(f.data)), data: bytes.NewReader(f.data)})
	}
	return files, nil
}

// noUsers keeps cloud-init from making the distribution's default user, which
// often has the number of the job's owner, at the moment at which slurmv-guest
// makes that one. The user's own data wins over it.
const noUsers = "#cloud-config\nusers: []\n"

// vendorData is what we ask of cloud-init, beside what the user does.
func vendorData() []byte {
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	_ = parts.SetBoundary("slurm-v") // fixed, so that equal seeds are equal; the parts do not contain it
	for _, part := range [][2]string{{"text/cloud-boothook", startGuest}, {"text/cloud-config", noUsers}} {
		w, _ := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {part[0]}})
		_, _ = io.WriteString(w, part[1]) // a Buffer takes all
	}
	_ = parts.Close()
	head := "Content-Type: multipart/mixed; boundary=\"slurm-v\"\nMIME-Version: 1.0\n\n"
	return append([]byte(head), body.Bytes()...)
}

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

// maxUserData bounds the user's cloud-init data, in bytes.
const maxUserData = 64 << 10

// A Seed is the content of a VM's seed disk: the NoCloud data source of cloud-init, and
// slurmv-guest.
type Seed struct {
	InstanceID  string // different for every VM; cloud-init configures a VM anew when it changes
	Hostname    string
	GuestBinary string // path of slurmv-guest on this node
	UserData    []byte // handed to cloud-init as it is; may be empty
}

// The label and the file name by which cloud-init and start-guest.sh find the disk and the
// agent.
const (
	seedLabel = "cidata"
	guestName = "slurmv-guest"
)

// startGuest is a script that cloud-init runs in the VM.
//
//go:embed start-guest.sh
var startGuest string

// ReadUserData reads the user's file for cloud-init with the user's rights.
func ReadUserData(ctx context.Context, path string, as owner.Owner) ([]byte, error) {
	file, _, err := open(ctx, as, "user data", path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxUserData+1))
	switch {
	case err != nil:
		return nil, &Error{What: "user data", Path: path, Reason: "cannot be read", Err: err}
	case len(data) > maxUserData:
		return nil, &Error{What: "user data", Path: path, Reason: fmt.Sprintf("is larger than %d KiB", maxUserData>>10)}
	}
	return data, nil
}

// WriteSeed writes the seed disk of one VM to path, which must not exist. The file belongs
// to as, with mode 0600, and is some KiB larger than slurmv-guest. The data is copied from
// file to file, so any number of seeds may be written at once.
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
	if len(s.UserData) > maxUserData {
		return nil, fmt.Errorf("user data of %d bytes is larger than %d", len(s.UserData), maxUserData)
	}
	// In mode "local" cloud-init does not wait for a network. The network comes up only
	// after slurmv-guest has got the VM's addresses. JSON is YAML too.
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
		{"network-config", []byte(`{"config":"disabled"}`)}, // slurmv-guest configures the network
		{"user-data", s.UserData},
		{"vendor-data", vendorData()},
	} {
		files = append(files, isoFile{name: f.name, size: int64(len(f.data)), data: bytes.NewReader(f.data)})
	}
	return files, nil
}

// noUsers keeps cloud-init from making the distribution's default user. That user often has
// the uid of the job's owner, whom slurmv-guest makes at the same time. The user's own data
// overrides noUsers.
const noUsers = "#cloud-config\nusers: []\n"

// vendorData is our own data for cloud-init, beside the user's.
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

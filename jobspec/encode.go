package jobspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// maxEncoded bounds the text of a Spec, in bytes. The longest option values give much
// less. The kernel allows a variable 128 KiB.
const maxEncoded = 96 << 10

// maxCount bounds every count that Decode accepts, and [config.MaxSize] every size, so
// that computations with them cannot overflow.
const maxCount = 1 << 16

// Encode returns the Spec as one line of JSON. Decode(s.Encode()) is s for every
// Spec that Validate accepts.
func (s Spec) Encode() string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic(err) // numbers, texts and booleans always have a JSON form
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// Decode reads the text of [Spec.Encode], and no other form of the same JSON: a
// repeated, misspelt or unknown key would let two readers see two requests.
// Nothing in the Spec is to be trusted before [Spec.Validate] has accepted it.
func Decode(text string) (Spec, error) {
	if len(text) > maxEncoded {
		return Spec{}, fmt.Errorf("read VM request: %d bytes long; at most %d are allowed", len(text), maxEncoded)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var spec Spec
	if err := decoder.Decode(&spec); err != nil {
		return Spec{}, fmt.Errorf("read VM request: %w; was the job submitted with another version of Slurm-V?", err)
	}
	if spec.Encode() != text {
		return Spec{}, errors.New("read VM request: not as Slurm-V writes it; was the job submitted with another version?")
	}
	if err := spec.bounded(); err != nil {
		return Spec{}, fmt.Errorf("read VM request: %w", err)
	}
	return spec, nil
}

// noncePattern matches what crypto/rand.Text returns, and somewhat longer texts.
var noncePattern = regexp.MustCompile(`^[A-Z2-7]{0,64}$`)

func (s Spec) bounded() error {
	if !noncePattern.MatchString(s.Nonce) {
		return errors.New("the nonce is not one of Slurm-V's")
	}
	for name, n := range map[string]int{
		"VMs": s.VMsPerNode, "vCPUs": s.VCPUs, "VFs": len(s.SRIOV.VFs), "devices": s.IVShmem.Devices, "mounts": len(s.Mounts),
	} {
		if n < 0 || n > maxCount {
			return fmt.Errorf("%d %s are out of range", n, name)
		}
	}
	for name, mib := range map[string]int64{
		"memory": s.MemoryMiB, "disk": s.DiskMiB, "shared memory": s.IVShmem.SizeMiB,
	} {
		if mib < 0 || mib > config.MaxSize.MiB() {
			return fmt.Errorf("%d MiB of %s are out of range", mib, name)
		}
	}
	for _, vf := range s.SRIOV.VFs {
		if rate := max(vf.MinMbps, vf.MaxMbps); rate > uint32(config.MaxRate) {
			return fmt.Errorf("%d Mb/s of a VF are out of range", rate)
		}
	}
	return nil
}

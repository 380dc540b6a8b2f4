package ivshmem

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/slurm-v/slurm-v/journal"
)

// nodeHash returns a text that stands for a node of a cluster in names: nodes of several
// clusters, and several slurmd, can share one /dev/shm. The directory of the journals,
// which must differ between clusters, tells clusters apart; the user could have forged
// what a job says about its cluster.
func nodeHash(state, node string) string {
	sum := sha256.Sum256([]byte(state + "\x00" + node))
	return fmt.Sprintf("%x", sum[:8])
}

// New returns the region for device index of the job's VMs. The last part of its name is
// random: a user who guesses the name could make the file first and keep the job from
// starting.
func (rs Regions) New(job journal.ID, index int, size int64) Region {
	name := fmt.Sprintf("slurmv-%s-%s-%d-%s", rs.node, job, index, strings.ToLower(rand.Text()))
	return Region{Name: name, Index: index, Size: size}
}

var namePattern = regexp.MustCompile(`^slurmv-([0-9a-f]{16})-([0-9]+\.[0-9]+)-([0-9]+)-[a-z2-7]{26}$`)

// parts are the parts of a region's name.
type parts struct {
	node  string
	job   journal.ID
	index int
}

func parseName(name string) (parts, bool) {
	found := namePattern.FindStringSubmatch(name)
	if found == nil {
		return parts{}, false
	}
	job, err := journal.ParseID(found[2])
	index, indexErr := strconv.Atoi(found[3])
	return parts{found[1], job, index}, err == nil && indexErr == nil
}

// A Found is a file that looks like a region of the node.
type Found struct {
	Region Region // its name, and its directory of huge pages
	Job    journal.ID
	UID    uint32 // owner of the file
}

// List returns the files whose name and kind are those of regions of the node, or some of
// very many. The name alone proves nothing, since every user can make such files; but
// they can make them only as their own.
func (rs Regions) List() ([]Found, error) {
	all, err := rs.listIn(rs.dir, "")
	mounts, mountsErr := os.ReadFile(mountTable)
	err = errors.Join(err, mountsErr)
	for _, m := range hugeMounts(string(mounts)) {
		huge, hugeErr := rs.listIn(m.dir, m.dir)
		all, err = append(all, huge...), errors.Join(err, hugeErr)
	}
	if err != nil {
		return nil, fmt.Errorf("list shared memory: %w", err)
	}
	slices.SortFunc(all, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Job.Job, b.Job.Job), cmp.Compare(a.Job.Restart, b.Job.Restart), cmp.Compare(a.Region.Name, b.Region.Name))
	})
	return all, nil
}

// maxFound bounds the list, since every user can make files that look like regions.
const maxFound = 10000

// listIn lists the regions in a directory. huge is that directory if it is a hugetlbfs,
// else "".
func (rs Regions) listIn(dir, huge string) (all []Found, err error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for len(all) < maxFound {
		entries, err := d.ReadDir(1024)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return all, err
		}
		all = append(all, rs.regionsAmong(entries, huge)...)
	}
	return all, nil
}

func (rs Regions) regionsAmong(entries []fs.DirEntry, huge string) (all []Found) {
	for _, e := range entries {
		is, ok := parseName(e.Name())
		if !ok || is.node != rs.node {
			continue
		}
		if uid, ok := looksLikeRegion(e); ok {
			all = append(all, Found{Region: Region{Name: e.Name(), Index: is.index, Huge: huge}, Job: is.job, UID: uid})
		}
	}
	return all
}

// looksLikeRegion returns the owner of a plain file with one name. A file with a second
// name could belong to anybody: some kernels let users make names for files of others.
func looksLikeRegion(e fs.DirEntry) (uid uint32, ok bool) {
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&^0o600 != 0 {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		return stat.Uid, stat.Nlink == 1
	}
	return 0, false
}

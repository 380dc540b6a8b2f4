package owner

import (
	"fmt"
	"os/user"
	"strconv"
)

// An Owner is the account to which a job's VMs, files and programs belong.
type Owner struct {
	Name   string // "" if unknown: messages then say "user UID"
	UID    uint32
	GID    uint32
	Groups []Group // all of them, the primary one first
	Home   string
	Shell  string
}

// IDs are the owner and group of a file or a device.
type IDs struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// IDs returns the ids of the owner's own files.
func (o Owner) IDs() IDs { return IDs{o.UID, o.GID} }

// A Group is one of an Owner's groups.
type Group struct {
	Name string
	GID  uint32
}

// GroupIDs returns the ids of the owner's groups.
func (o Owner) GroupIDs() []uint32 {
	ids := make([]uint32, len(o.Groups))
	for i, g := range o.Groups {
		ids[i] = g.GID
	}
	return ids
}

// Lookup finds the account of a job's owner in this node's user database.
func Lookup(uid, gid uint32) (Owner, error) {
	account, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return Owner{}, fmt.Errorf("look up the job's owner: %w", err)
	}
	ids, err := account.GroupIds()
	if err != nil {
		return Owner{}, fmt.Errorf("look up the groups of %s: %w", account.Username, err)
	}
	primary := strconv.FormatUint(uint64(gid), 10)
	o := Owner{Name: account.Username, UID: uid, GID: gid, Home: account.HomeDir, Shell: "/bin/sh"}
	for _, id := range append([]string{primary}, ids...) {
		if id == primary && len(o.Groups) > 0 {
			continue
		}
		o.Groups = append(o.Groups, LookupGroup(id))
	}
	return o, nil
}

// LookupGroup finds a group by its number. If the user database does not know the group,
// its name is the number.
func LookupGroup(id string) Group {
	gid, _ := strconv.ParseUint(id, 10, 32)
	g := Group{Name: "group" + id, GID: uint32(gid)}
	if entry, err := user.LookupGroupId(id); err == nil {
		g.Name = entry.Name
	}
	return g
}

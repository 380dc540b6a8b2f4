package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/guest"
)

func checkUser(u guest.User) error {
	switch {
	case u.UID == 0:
		return nil // every image has it
	case !validName(u.Name):
		return fmt.Errorf("%.80q is not a user name", u.Name)
	case !filepath.IsAbs(u.Home) || strings.ContainsAny(u.Home, ":\n"):
		return fmt.Errorf("%.80q is not a home directory", u.Home)
	case strings.ContainsAny(u.Shell, ":\n"):
		return fmt.Errorf("%.80q is not a shell", u.Shell)
	}
	for _, g := range u.Groups {
		if !validName(g.Name) {
			return fmt.Errorf("%.80q is not a group name", g.Name)
		}
	}
	return nil
}

// validName reports whether a name can stand in the files of /etc. Backslashes and at signs
// are allowed, because names of directory services have them.
func validName(name string) bool {
	return name != "" && len(name) <= 256 && !strings.ContainsAny(name[:1], "-+") &&
		strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`:,/#"`, r) }) < 0
}

// user adds the job's owner to the VM's users and, unless a mount contains it, makes the
// owner's home directory.
func (m *Machine) user(u guest.User, mounts []guest.Mount) error {
	if u.UID == 0 {
		return nil
	}
	if _, err := os.Stat(m.path(u.Shell)); u.Shell == "" || err != nil {
		u.Shell = "/bin/sh"
	}
	if err := edit(m.path("etc/passwd"), func(text string) string { return withUser(text, u) }); err != nil {
		return fmt.Errorf("make user %s: %w", u.Name, err)
	}
	if err := edit(m.path("etc/group"), func(text string) string { return withGroups(text, u) }); err != nil {
		return fmt.Errorf("make the groups of user %s: %w", u.Name, err)
	}
	if slices.ContainsFunc(mounts, func(mount guest.Mount) bool { return within(u.Home, mount.Path) }) {
		return nil
	}
	if err := m.home(u); err != nil {
		return fmt.Errorf("make the home directory of user %s: %w", u.Name, err)
	}
	return nil
}

// home makes the home directory, unless the image has it.
func (m *Machine) home(u guest.User) error {
	home := m.path(u.Home)
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(home, 0o700); os.IsExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	return os.Chown(home, int(u.UID), int(u.GID))
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// edit changes a file of /etc. It writes the file only if the text has changed.
func edit(path string, change func(string) string) error {
	old, err := readFile(path)
	if err != nil {
		return err
	}
	if text := change(old); text != old {
		return writeFile(path, text, 0o644)
	}
	return nil
}

// withUser is the text of /etc/passwd with u in it. u replaces an entry with the same name.
// An entry with the same uid stays, but u comes before it, so the uid has u's name. The
// password "*" is locked, and lets sshd accept keys without /etc/shadow.
func withUser(passwd string, u guest.User) string {
	entry := fmt.Sprintf("%s:*:%d:%d::%s:%s", u.Name, u.UID, u.GID, u.Home, u.Shell)
	var lines []string
	placed := false
	for line := range strings.Lines(passwd) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Split(line, ":")
		if fields[0] == u.Name {
			continue
		}
		if !placed && len(fields) > 2 && fields[2] == strconv.Itoa(int(u.UID)) {
			lines, placed = append(lines, entry), true
		}
		lines = append(lines, line)
	}
	if !placed {
		lines = append(lines, entry)
	}
	return strings.Join(lines, "\n") + "\n"
}

// withGroups is the text of /etc/group in which u is a member of its groups. A group id
// that the image has keeps the image's name for it.
func withGroups(group string, u guest.User) string {
	var entries [][]string
	for line := range strings.Lines(group) {
		entries = append(entries, strings.Split(strings.TrimSuffix(line, "\n"), ":"))
	}
	wanted := slices.Clone(u.Groups)
	if !slices.ContainsFunc(wanted, func(g guest.Group) bool { return g.GID == u.GID }) {
		wanted = append(wanted, guest.Group{Name: u.Name, GID: u.GID})
	}
	for _, g := range wanted {
		entries = withMember(entries, g, u)
	}
	var text strings.Builder
	for _, fields := range entries {
		text.WriteString(strings.Join(fields, ":") + "\n")
	}
	return text.String()
}

func withMember(entries [][]string, g guest.Group, u guest.User) [][]string {
	id := strconv.Itoa(int(g.GID))
	taken := false
	for _, fields := range entries {
		if len(fields) == 4 && fields[2] == id {
			if g.GID != u.GID {
				fields[3] = addMember(fields[3], u.Name)
			}
			return entries
		}
		taken = taken || fields[0] == g.Name
	}
	if taken { // by another id
		g.Name = "gid" + id
	}
	members := u.Name
	if g.GID == u.GID {
		members = "" // the primary group needs none
	}
	return append(entries, []string{g.Name, "x", id, members})
}

func addMember(members, name string) string {
	if members == "" {
		return name
	}
	if slices.Contains(strings.Split(members, ","), name) {
		return members
	}
	return members + "," + name
}

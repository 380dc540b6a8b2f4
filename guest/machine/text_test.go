package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
)

func TestWithUser(t *testing.T) {
	const entry = "alice:*:4321:100::/home/alice:/bin/bash\n"
	tests := map[string]struct{ passwd, want string }{
		"a new user":              {"root:x:0:0::/root:/bin/sh\n", "root:x:0:0::/root:/bin/sh\n" + entry},
		"an empty file":           {"", entry},
		"no newline at the end":   {"root:x:0:0::/root:/bin/sh", "root:x:0:0::/root:/bin/sh\n" + entry},
		"the same name":           {"alice:x:1000:1000::/a:/bin/sh\nz:x:1:1::/:/z\n", "z:x:1:1::/:/z\n" + entry},
		"the same uid":            {"debian:x:4321:1000::/d:/bin/sh\n", entry + "debian:x:4321:1000::/d:/bin/sh\n"},
		"the same entry":          {"root:x:0:0::/root:/bin/sh\n" + entry, "root:x:0:0::/root:/bin/sh\n" + entry},
		"a name that begins like": {"alices:x:7:7::/:/\n", "alices:x:7:7::/:/\n" + entry},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := withUser(tt.passwd, alice)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("passwd differs (-want +got):\n%s", diff)
			}
			if again := withUser(got, alice); again != got {
				t.Errorf("a second time: %q", again)
			}
		})
	}
}

func TestWithGroups(t *testing.T) {
	tests := map[string]struct{ group, want string }{
		"new groups":                   {"root:x:0:\n", "root:x:0:\nusers:x:100:\nchem:x:7000:alice\n"},
		"known groups":                 {"users:x:100:\nchem:x:7000:bob\n", "users:x:100:\nchem:x:7000:bob,alice\n"},
		"another name for the id":      {"people:x:100:\nlab:x:7000:\n", "people:x:100:\nlab:x:7000:alice\n"},
		"another id for the name":      {"users:x:100:\nchem:x:999:\n", "users:x:100:\nchem:x:999:\ngid7000:x:7000:alice\n"},
		"already a member":             {"users:x:100:\nchem:x:7000:alice\n", "users:x:100:\nchem:x:7000:alice\n"},
		"a line that is no group":      {"users:x:100:\n+\nchem:x:7000:alice\n", "users:x:100:\n+\nchem:x:7000:alice\n"},
		"a member that begins like":    {"users:x:100:\nchem:x:7000:alices\n", "users:x:100:\nchem:x:7000:alices,alice\n"},
		"no newline at the file's end": {"users:x:100:", "users:x:100:\nchem:x:7000:alice\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := withGroups(tt.group, alice)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("group differs (-want +got):\n%s", diff)
			}
			if again := withGroups(got, alice); again != got {
				t.Errorf("a second time: %q", again)
			}
		})
	}
	lone := guest.User{Name: "bob", UID: 5, GID: 6}
	if got := withGroups("", lone); got != "bob:x:6:\n" {
		t.Errorf("a primary group without a name = %q", got)
	}
}

func TestWithHosts(t *testing.T) {
	hosts := []guest.Host{{Name: "vm0", Address: "172.30.0.1"}, {Name: "vm1", Address: "172.30.0.2"}}
	block := hostsBegin + "\n172.30.0.1\tvm0\n172.30.0.2\tvm1\n" + hostsEnd + "\n"
	tests := map[string]struct{ hosts, want string }{
		"an empty file":              {"", block},
		"what was there stays":       {"127.0.0.1\tlocalhost\n::1 localhost\n", block + "127.0.0.1\tlocalhost\n::1 localhost\n"},
		"an old block is replaced":   {hostsBegin + "\n10.0.0.1 vm0\n" + hostsEnd + "\n127.0.0.1 localhost\n", block + "127.0.0.1 localhost\n"},
		"an old block without end":   {"127.0.0.1 localhost\n" + hostsBegin + "\n10.0.0.1 vm0\n", block + "127.0.0.1 localhost\n"},
		"Debian's line goes":         {"127.0.1.1\tvm1\n", block},
		"Debian's line loses a name": {"127.0.1.1\tvm1.site vm1\n", block + "127.0.1.1\tvm1.site\n"},
		"Debian's line of others":    {"127.0.1.1 image  # old\n", block + "127.0.1.1 image  # old\n"},
		"a comment":                  {"# 127.0.1.1 vm0\n", block + "# 127.0.1.1 vm0\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := withHosts(tt.hosts, hosts)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("hosts differ (-want +got):\n%s", diff)
			}
			if again := withHosts(got, hosts); again != got {
				t.Errorf("a second time: %q", again)
			}
		})
	}
}

func TestSetHosts(t *testing.T) {
	d := newDouble(t, map[string]string{"etc/hosts": "127.0.0.1 localhost\n"})
	if err := d.SetHosts(t.Context(), []guest.Host{{Name: "vm0", Address: "fd00::1"}}); err != nil {
		t.Fatal(err)
	}
	if got := d.text(t, "etc/hosts"); !strings.Contains(got, "\nfd00::1\tvm0\n") {
		t.Errorf("/etc/hosts = %q", got)
	}
	for _, bad := range []guest.Host{{Name: "vm0", Address: "10.0.0.1\n10.0.0.2 evil"}, {Name: "a b", Address: "10.0.0.1"}} {
		if err := d.SetHosts(t.Context(), []guest.Host{bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestWithin(t *testing.T) {
	tests := map[string]struct {
		path, dir string
		want      bool
	}{
		"itself":          {"/a/b", "/a/b", true},
		"below":           {"/a/b/c", "/a/b", true},
		"above":           {"/a", "/a/b", false},
		"beside":          {"/a/bc", "/a/b", false},
		"below with dots": {"/a/b/..c", "/a/b", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := within(tt.path, tt.dir); got != tt.want {
				t.Errorf("%s within %s = %v", tt.path, tt.dir, got)
			}
		})
	}
}

// Whatever the files held, the job's owner is in them once and the rest stays.
func FuzzPasswd(f *testing.F) {
	f.Add("root:x:0:0::/root:/bin/sh\nalice:x:1:1::/:/\n")
	f.Fuzz(func(t *testing.T, passwd string) {
		got := withUser(passwd, alice)
		if n := strings.Count("\n"+got, "\nalice:"); n != 1 {
			t.Fatalf("%d entries in %q", n, got)
		}
		if withUser(got, alice) != got {
			t.Fatalf("a second time differs: %q", got)
		}
	})
}

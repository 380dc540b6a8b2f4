package vmstep

import (
	"strings"
	"testing"
)

func TestUCXUsesNothingThatEndsAtTheVM(t *testing.T) {
	tests := map[string]struct {
		env  []string
		want string // in the error; "" if none
	}{
		"nothing of the user's":           {nil, ""},
		"another transport":               {[]string{"UCX_TLS=tcp"}, ""},
		"transports that work":            {[]string{"UCX_TLS=rc,posix,self"}, ""},
		"all but sysv":                    {[]string{"UCX_TLS=^sysv,cma"}, ""},
		"all but sysv, by its own name":   {[]string{`UCX_TLS=^\sysv`}, ""},
		"all but shared memory":           {[]string{"UCX_TLS=^sm"}, ""},
		"a variable with a similar name":  {[]string{"UCX_TLS_X=all"}, ""},
		"all transports":                  {[]string{"UCX_TLS=all"}, "UCX_TLS=all lets UCX use System V's memory, which another VM has not: set UCX_TLS=^sysv, or leave it unset"},
		"all but all, which is all":       {[]string{"UCX_TLS=^all"}, "set UCX_TLS=^sysv,"},
		"all but others":                  {[]string{"UCX_TLS=^ib,cma"}, "set UCX_TLS=^ib,cma,sysv,"},
		"sysv":                            {[]string{"UCX_TLS=sysv,self"}, "set UCX_TLS=posix,self,"},
		"sysv, by its own name":           {[]string{`UCX_TLS=tcp,\sysv`}, "set UCX_TLS=tcp,posix,"},
		"shared memory":                   {[]string{"UCX_TLS=rc,sm"}, "set UCX_TLS=rc,posix,"},
		"shared memory, by another name":  {[]string{"UCX_TLS=shm,posix"}, "set UCX_TLS=posix,"},
		"mapped memory":                   {[]string{"UCX_TLS=mm"}, "set UCX_TLS=posix,"},
		"another interface":               {[]string{"UCX_NET_DEVICES=eth0,mlx5_0:1"}, ""},
		"an interface of a similar name":  {[]string{"UCX_NET_DEVICES=lo1"}, ""},
		"lo":                              {[]string{"UCX_NET_DEVICES=eth0,lo"}, "UCX_NET_DEVICES=eth0,lo lets UCX use lo, which leads to no other VM: set it to the other interfaces, or leave it unset"},
		"all interfaces":                  {[]string{"UCX_NET_DEVICES=all", "UCX_TLS=^sysv"}, "UCX_NET_DEVICES=all lets UCX use lo"},
		"all interfaces, but not for TCP": {[]string{"UCX_NET_DEVICES=all", "UCX_TLS=rc,posix"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := MPIMemory{Size: 64 << 20, Ranks: 2}.Check(tt.env)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

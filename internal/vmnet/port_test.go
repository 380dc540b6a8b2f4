package vmnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
)

func listen(address string) (socket net.PacketConn, err error) {
	return net.ListenPacket("udp", address)
}

func TestNoUserTakesTheVXLANPortFirst(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		port int
		want error
	}{{config.VXLANPort, unix.EACCES}, {4789, nil}} {
		err := n.lab.AsNobody(func() error {
			socket, err := listen(fmt.Sprintf("127.0.0.1:%d", tt.port))
			if err == nil {
				socket.Close()
			}
			return err
		})
		if !errors.Is(err, tt.want) {
			t.Errorf("an ordinary user takes UDP port %d: error = %v, want %v", tt.port, err, tt.want)
		}
	}
}

func TestWhoHasTheVXLANPortIsNamed(t *testing.T) {
	for name, address := range map[string]string{
		"one address": "127.0.0.1:%d", "all of them": "0.0.0.0:%d", "those of IPv6 too": "[::]:%d",
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newPair(t)
			network := Network{ID: job1, Nodes: 2, Underlay: a.underlay, Port: config.VXLANPort}
			var socket net.PacketConn
			a.do(func() (err error) {
				socket, err = listen(fmt.Sprintf(address, config.VXLANPort))
				return err
			})
			defer socket.Close()
			err := a.try(func() error { return Create(t.Context(), network) })
			want := fmt.Sprintf("UDP port 299, which VXLAN needs, is taken by process %d (%s) of user root; end it, or choose another vxlan_port",
				os.Getpid(), programOf(os.Getpid()))
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("error = %v\nwant    %s", err, want)
			}
			a.do(func() error { return Delete(t.Context(), job1) })
			socket.Close()
			a.do(func() error { return Create(t.Context(), network) })
		})
	}
}

// The sockets of other jobs' VXLAN devices belong to the kernel.
func TestNobodyHasThePortOfADevice(t *testing.T) {
	a, b := newPair(t)
	connect(t, job1, a, b)
	a.do(func() error {
		if len(socketsOn(config.VXLANPort)) == 0 {
			t.Error("the device's socket is not seen")
		}
		if holder, found := HolderOf(config.VXLANPort); found {
			t.Errorf("its port is that of %v", holder)
		}
		return nil
	})
}

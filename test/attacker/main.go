// Command attacker is what a user runs on a node against other users, or against root.
// Each of its words is one attack; it says what it got.
//
//	attacker open-tap NAME...       opens the taps
//	attacker steal-taps MAC         takes the descriptors of taps from the user's QEMUs, and gives the taps that MAC
//	attacker deep DIRECTORY LEVELS  makes directories, one in the other
//	attacker busy DIRECTORY         goes on making directories there
//	attacker lease FILE             holds a lease on the file
//	attacker flood SOCKET COUNT     connects that often and says nothing
//	attacker bind-udp PORT          takes a UDP port
//	attacker hold-name NAME...      listens on abstract sockets
//
// The last five go on until their standard input ends.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	attacks := map[string]func([]string) error{
		"open-tap": openTaps, "steal-taps": stealTaps, "deep": deep, "busy": busy, "lease": lease,
		"flood": flood, "bind-udp": bindUDP, "hold-name": holdNames,
	}
	if len(os.Args) < 3 || attacks[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "attacker: see the comment in the source")
		os.Exit(2)
	}
	if err := attacks[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Println("got nothing:", err)
		os.Exit(1)
	}
}

func openTaps(names []string) error {
	var failed error
	for _, name := range names {
		if err := openTap(name); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		fmt.Println("got", name)
	}
	return failed
}

func openTap(name string) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
}

func stealTaps(args []string) error {
	mac, err := net.ParseMAC(args[0])
	if err != nil {
		return err
	}
	all, err := filepath.Glob("/proc/[0-9]*/fd/*")
	stolen := 0
	for _, link := range all {
		parts := strings.Split(link, "/")
		if at, err := os.Readlink(link); err != nil || at != "/dev/net/tun" || !onThisNode(parts[2]) {
			continue
		}
		if err := steal(parts[2], parts[4], mac); err != nil {
			fmt.Println("not", link, err)
			continue
		}
		fmt.Println("got", link)
		stolen++
	}
	if stolen == 0 {
		return errors.Join(err, errors.New("no QEMU has a tap that could be taken"))
	}
	return err
}

// onThisNode tells the processes of this node from those of others on the same machine.
func onThisNode(process string) bool {
	theirs, err := os.Readlink("/proc/" + process + "/ns/net")
	ours, _ := os.Readlink("/proc/self/ns/net")
	return err == nil && theirs == ours
}

// steal takes a descriptor of another process, and gives its tap the address.
func steal(process, descriptor string, mac net.HardwareAddr) error {
	pid, err1 := strconv.Atoi(process)
	number, err2 := strconv.Atoi(descriptor)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	tap, err := unix.PidfdGetfd(pidfd, number, 0)
	if err != nil {
		return fmt.Errorf("take it: %w", err)
	}
	return setMAC(tap, mac)
}

func deep(args []string) error {
	levels, err := strconv.Atoi(args[1])
	if err == nil {
		err = os.Chdir(args[0])
	}
	for made := 0; err == nil && made < levels; made++ {
		if err = os.Mkdir("d", 0o755); err == nil {
			err = os.Chdir("d")
		}
	}
	if err == nil {
		fmt.Println("got", levels, "levels")
	}
	return err
}

func busy(args []string) error {
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	fmt.Println("got in")
	go func() {
		for i := 0; ; i++ {
			_ = os.MkdirAll(fmt.Sprintf("%d/%d", i%100, i), 0o755)
		}
	}()
	untilTold()
	return nil
}

// untilTold waits for the end of standard input.
func untilTold() { _, _ = io.Copy(io.Discard, os.Stdin) }

func lease(args []string) error {
	file, err := os.OpenFile(args[0], os.O_RDONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	}
	if err == nil {
		fmt.Println("got a lease")
		untilTold()
	}
	return err
}

func flood(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var held []net.Conn
	var last error
	for range count {
		conn, err := net.Dial("unix", args[0])
		if err != nil {
			last = err
			continue
		}
		held = append(held, conn)
	}
	fmt.Println("got", len(held), "connections")
	untilTold()
	if len(held) == 0 {
		return last
	}
	return nil
}

func bindUDP(args []string) error {
	port, err := strconv.Atoi(args[0])
	if err == nil {
		_, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	}
	if err == nil {
		fmt.Println("got port", port)
		untilTold()
	}
	return err
}

func holdNames(names []string) error {
	for _, name := range names {
		if _, err := net.Listen("unix", "@"+name); err != nil {
			return err
		}
	}
	fmt.Println("got", len(names), "names")
	untilTold()
	return nil
}

// fsstress does random operations on files of a directory, and checks each against what it remembers.
//
//	fsstress [-operations N] [-workers N] [-seed N] [-also DIRECTORY] DIRECTORY
//
// Each worker has a directory of its own below DIRECTORY, which must be empty. At the end all is read again;
// with -also through a second path to the same directory, as from the node if DIRECTORY is a VM's mount. Only
// what was right is removed. The exit status is 1 if a byte, a name or an attribute was wrong.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

func main() {
	operations := flag.Int64("operations", 100_000, "do this `number` of operations in all")
	workers := flag.Int("workers", 4, "in this `number` of directories at once")
	seed := flag.Uint64("seed", 1, "choose the operations by this `number`")
	also := flag.String("also", "", "read all at the end through this `directory`, too")
	flag.Parse()
	if flag.NArg() != 1 || *workers < 1 {
		flag.Usage()
		os.Exit(2)
	}
	syscall.Umask(0o022) // files are made with the modes that the workers remember
	kinds, err := stress(flag.Arg(0), *also, *workers, *operations, *seed)
	if err != nil {
		fmt.Fprintf(os.Stderr, "fsstress: %v (seed %d)\n", err, *seed)
		os.Exit(1)
	}
	fmt.Printf("fsstress: %d operations by %d workers, all right: %v\n", *operations, *workers, kinds)
}

// stress runs the workers until all operations are done or one was wrong. It returns how many of each kind
// were done.
func stress(dir, also string, workers int, operations int64, seed uint64) (map[string]int, error) {
	var left atomic.Int64
	left.Store(operations)
	all := make([]*worker, workers)
	failed := make([]error, workers)
	var running sync.WaitGroup
	for i := range all {
		name := fmt.Sprintf("worker%d", i)
		second := also
		if second != "" {
			second = filepath.Join(also, name)
		}
		all[i] = newWorker(filepath.Join(dir, name), second, seed+uint64(i))
		running.Go(func() {
			failed[i] = all[i].run(&left)
			if failed[i] != nil {
				left.Store(0)
			}
		})
	}
	running.Wait()
	done := map[string]int{}
	for _, w := range all {
		for kind, n := range w.done {
			done[kind] += n
		}
	}
	return done, errors.Join(failed...)
}

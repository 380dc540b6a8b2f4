// Command spank is the plugin of Slurm-V for Slurm.
//
// Slurm loads slurmv.so, the shim, into all of its programs; the C files here are its
// source. This Go half is built with -buildmode=c-shared into libslurmv.so. The shim loads
// libslurmv.so only in sbatch and salloc, and only for a job with VM options. It
// checks the options and answers with the variables for the job. It keeps no goroutine, no
// signal and no state. The C files are not part of the library: their first line excludes
// them.
package main

/*
#include <stdlib.h>
#include "request.h"
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

//go:generate go run ./internal/genheaders options.h mark.h

func main() {}

// slurmvRequest is described in request.h. It copies its arguments, allocates its answers
// with malloc, and lets no panic out.
//
//export slurmvRequest
func slurmvRequest(config *C.char, options **C.char, answer *C.struct_slurmv_answer) (code C.int) {
	defer func() {
		if fault := recover(); fault != nil {
			answer.error = C.CString(fmt.Sprintf("slurmv: fault while the VM options were checked: %v; please report it", fault))
			code = -1
		}
	}()
	got, err := check(C.GoString(config), texts(options))
	if err != nil {
		answer.error = C.CString(err.Error())
		return -1
	}
	answer.spec, answer.request, answer.fabric = stringOrNull(got.spec), stringOrNull(got.resources), stringOrNull(got.fabric)
	return 0
}

// stringOrNull returns NULL for an empty text.
func stringOrNull(text string) *C.char {
	if text == "" {
		return nil
	}
	return C.CString(text)
}

// texts copies an array of C strings that is ended by NULL.
func texts(array **C.char) []string {
	var copies []string
	for *array != nil {
		copies = append(copies, C.GoString(*array))
		array = (**C.char)(unsafe.Add(unsafe.Pointer(array), unsafe.Sizeof(*array)))
	}
	return copies
}

// check answers the request of the command in which it runs.
func check(config string, options []string) (answer, error) {
	// Not os.Getwd, which believes the shell's PWD: Slurm's commands resolve symbolic links.
	dir, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		return answer{}, fmt.Errorf("find the working directory: %w", err)
	}
	shell, err := os.Getwd()
	if err != nil {
		return answer{}, fmt.Errorf("find the working directory: %w", err)
	}
	args, err := commandLine("/proc/self/cmdline")
	if err != nil {
		return answer{}, err
	}
	return submission{
		config:  config,
		options: options,
		dir:     dir,
		shell:   shell,
		args:    args,
		env:     os.Getenv,
		stdin:   "/proc/self/fd/0",
	}.answer()
}

/*
 * The files that the ranks of a node share: a directory and room for data, in the memory
 * of a device that all VMs of the job on this node map.
 *
 * The directory is at the device's end, and files are given room from there downwards.
 * So what programs do themselves with the beginning of the device, and what MPI does with
 * its end, stay apart: see region_claim_for_program.
 *
 * The device is zero when a run begins, and all zero is a directory without files.
 * Nothing here survives the run, so what a killed rank leaves needs no other end.
 */
#ifndef REGION_H
#define REGION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define REGION_PAGE 4096ull
#define REGION_FILES 1024
#define REGION_NAME 104 /* bytes of a name, with its end */

/*
 * A file. Its data is one piece of the device, which it gets when it is mapped, or holds another
 * byte than 0. Until then it only has a promise of so much room. UCX sees whether there is memory by
 * writing zeros in small pieces. If each piece had a place, the files of two ranks would grow into each
 * other, move, and leave holes in which none of them fits.
 */
struct region_file {
	char name[REGION_NAME]; /* "" after its removal */
	uint32_t used;          /* 0: this is nobody's file */
	uint32_t users;         /* descriptors and mappings in all processes, without those that a child has of its parent */
	uint32_t vm;            /* of its maker */
	uint16_t mode;
	uint16_t met;           /* 1: a process of another VM has opened it */
	uint64_t at;   /* offset in the device, or REGION_NOWHERE */
	uint64_t size; /* bytes that fstat tells */
	uint64_t room; /* bytes that are its own or promised, whole pages */
};

#define REGION_NOWHERE UINT64_MAX

/* Maps the device and finds the directory. Returns 0, or an errno. The path must stay. */
int region_open(const char *device, unsigned vm, uint64_t programs);

/* Maps a part of the device, as mmap(2) does. */
void *region_map(void *at, size_t length, int protection, int flags, off_t offset);

/* Where the device begins, and its bytes. NULL and 0 before region_open. */
char *region_base(void);
uint64_t region_size(void);

/* All below take numbers of files, and lock by themselves. They return 0 or a number of a
 * file, or a negative errno. */

/* Finds the file, or makes it as open(2) does by its flags. Counts one user. */
int region_get(const char *name, int flags, mode_t mode);
int region_find(const char *name, struct region_file *copy);
/* Returns 1 if a process of another VM has opened the file. */
int region_unlink(const char *name);
/* Counts a user more. A file that a child has of its parent may be gone: -ESTALE. */
int region_hold(int file);
void region_drop(int file);
/* Gives the file size bytes, which are a promise while it has no place. With keep it does not become smaller. Only the process that
 * has own users of the file may move it. */
int region_resize(int file, uint64_t size, bool keep);
/* Gives the file's room its place, if it has none yet. The place stays while the file has two users. */
int region_place(int file);
struct region_file region_stat(int file);

/* The program opens the device itself: MPI leaves it the first bytes from now on. Returns
 * how many, or 0 if MPI has them already. */
uint64_t region_claim_for_program(void);
/* Bytes that MPI can still get. */
uint64_t region_left(void);

/* Around fork, before the child counts for itself. */
void region_before_fork(void);
void region_after_fork(void);

#endif

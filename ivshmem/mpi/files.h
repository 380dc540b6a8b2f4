/* The files of the region that this process has opened or mapped. */
#ifndef FILES_H
#define FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Whether this process has the region, which the first such question opens; until then a process pays nothing. */
bool files_ready(void);

/* Whether a path is a file of MPI's, which ranks of other VMs shall see. */
bool files_know(const char *path);

/* Whether this process has opened such a file of UCX's. */
bool files_of_ucx(void);

/* As open(2), for a path that files_know. */
int files_open(const char *path, int flags, mode_t mode);
/* The region's file behind a descriptor; -1 if it is another's, even if it was the region's before. */
int files_of(int fd);
/* The descriptor is to be closed; to is a copy of from now. */
void files_closing(int fd);
void files_copied(int from, int to);

ssize_t files_read(int fd, void *to, size_t n);
ssize_t files_write(int fd, const void *from, size_t n);
/* As pread and pwrite. */
ssize_t files_read_at(int fd, void *to, size_t n, off_t at);
ssize_t files_write_at(int fd, const void *from, size_t n, off_t at);
off_t files_seek(int fd, off_t offset, int whence);
int files_resize(int fd, uint64_t size, bool keep);
int files_stat(int fd, struct stat *st);
int files_stat_path(const char *path, struct stat *st);
int files_unlink(const char *path);

void *files_map(void *at, size_t length, int protection, int flags, int fd, off_t offset);
/* Whether [at, at + length) may have mappings of files of MPI's. */
bool files_touch(const void *at, size_t length);
/* As mmap with MAP_FIXED, of what is no file of MPI's, and munmap, where files_touch. */
void *files_map_over(void *at, size_t length, int protection, int flags, int fd, off_t offset);
int files_unmap(void *at, size_t length);
/* Whether an address is in a mapped file. */
bool files_mapped(const volatile void *at);

/* The program opens the device itself, with this descriptor. */
int files_device(int fd);
/* Bytes that the program has of it; 0 if fd is another's. */
uint64_t files_device_size(int fd);

#endif

/* What the kernel tells about the machine and its processes, as MPI shall see it. */
#ifndef MACHINE_H
#define MACHINE_H

/* Opens a file with what a file of /proc shall say to that caller's library; -1 if the kernel shall say it itself. */
int machine_open(const char *path, const void *caller);

#endif

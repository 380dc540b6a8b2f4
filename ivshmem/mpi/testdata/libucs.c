/* UCX opens a file. */
#include <fcntl.h>
#include <stdio.h>

int ucs_open(const char *path);
FILE *ucs_fopen(const char *path);

int ucs_open(const char *path)
{
	int fd = open(path, O_RDONLY);

	return fd; /* not a jump, after which another is the caller */
}

FILE *ucs_fopen(const char *path)
{
	FILE *file = fopen(path, "r");

	return file;
}

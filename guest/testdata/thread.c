/* A thread of this program becomes the program in the first argument. */
#include <pthread.h>
#include <unistd.h>

static void *become(void *path)
{
	execl(path, path, (char *)NULL);
	return path;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc == 2 && !pthread_create(&thread, NULL, become, argv[1]))
		pthread_join(thread, NULL);
	return 1;
}

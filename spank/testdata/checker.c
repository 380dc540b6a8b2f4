/*
 * Stands for libslurmv.so. It refuses an image named "bad" in two lines. Otherwise it
 * answers with the path of the configuration and the options that it got. If the option
 * vm-fabric is the only one, the job has no VMs.
 */
#include "../request.h"

#include <stdlib.h>
#include <string.h>

int slurmvRequest(char *config, char **options, struct slurmv_answer *answer)
{
	char text[4096] = "";
	const char *first = *options;

	if (!strncmp(first, "vm-fabric=", 10)) {
		answer->fabric = strdup(first + 10);
		return 0;
	}
	strcat(text, config);
	for (; *options; options++) {
		if (!strcmp(*options, "vm-image=bad")) {
			answer->error = strdup("--vm-image: no such image\n#SBATCH --vm-image=good");
			return -1;
		}
		if (!strncmp(*options, "vm-fabric=", 10))
			answer->fabric = strdup(*options + 10);
		strcat(strcat(text, " "), *options);
	}
	answer->spec = strdup(text);
	answer->request = strdup("cpus:4,mem:2560");
	return 0;
}

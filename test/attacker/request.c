//go:build ignore

/*
 * A plugin of a user's own, for sbatch: it puts the text of ATTACK_REQUEST, repeated
 * ATTACK_TIMES times, where Slurm-V's plugin puts what the VMs need.
 */
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(attack, 1)

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	const char *text = getenv("ATTACK_REQUEST"), *count = getenv("ATTACK_TIMES");
	size_t n = text ? strlen(text) : 0, times = count ? strtoul(count, NULL, 10) : 1;
	char *all = calloc(times, n + 1);

	if (!text || spank_context() != S_CTX_ALLOCATOR)
		return 0;
	for (size_t i = 0; i < times; i++)
		memcpy(all + i * n, text, n);
	return spank_job_control_setenv(sp, "SLURMV_REQUEST", all, 1) == ESPANK_SUCCESS ? 0 : -1;
}

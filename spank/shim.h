/* The functions that the files of the shim share. */
#ifndef SLURMV_SHIM_H
#define SLURMV_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

/* The arguments of the plugin's line in plugstack.conf. */
struct settings {
	const char *config, *agent, *state;
	const char *wrong; /* an argument that is not understood, or NULL */
};

/* Shows a sentence to the user, or to slurmd's log, and returns -1. */
int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
int refuse_settings(const struct settings *s);
void show_error(const char *text);
void show_node_error(const char *text); /* with ERROR_MARK, for the log of a step */
void show(const char *text);

/* submit.c: sbatch, salloc and srun */
int register_options(spank_t sp);
void forget_outer_job(void);
int check_submission(spank_t sp, const struct settings *s);
int check_srun(void);

/* node.c: slurmstepd */
bool is_vm_step(spank_t sp, const struct settings *s);
bool is_first_task(spank_t sp);
void expect_placement(spank_t sp); /* in the step, before its tasks */
void note_placement(spank_t sp);   /* in the step: the task is in its cgroups */
int await_placement(spank_t sp);   /* in the task; returns -1 and tells the user if it may not be in its cgroups */
int launch(spank_t sp, const struct settings *s);
void reclaim_step(spank_t sp, const struct settings *s);
void reclaim_job(spank_t sp, const struct settings *s);

/* node.c, for fabric.c */
const char *node_name(void);
uint32_t number(spank_t sp, spank_item_t item);
char *const *begin_environment(void); /* of an agent; add_job goes on with it */
void add_job(spank_t sp);
/* Writes STATE/rest with the node's name in place of %n; false if path is too small. */
bool below_state(const struct settings *s, const char *rest, char *path, size_t size);

/* fabric.c: the tasks of jobs with tags on the fabric */
bool wants_tags(spank_t sp);
int give_tags(spank_t sp, const struct settings *s);

#endif

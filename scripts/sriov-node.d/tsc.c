/*
 * Prints the rate of this machine's time-stamp counter, in kHz. The emulator (TCG) gives
 * this counter to the emulated machine.
 *
 * A reading takes the clock between two looks at the counter. Of several readings, the
 * one with the least time between the looks counts: nobody preempted it.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct reading {
	uint64_t ticks, nanoseconds, took;
};

static struct reading take(void)
{
	struct timespec now;
	struct reading r = { .ticks = __rdtsc() };

	clock_gettime(CLOCK_MONOTONIC, &now);
	r.took = __rdtsc() - r.ticks;
	r.nanoseconds = now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
	return r;
}

static struct reading best(void)
{
	struct reading best = take();

	for (int i = 0; i < 100; i++) {
		struct reading r = take();
		if (r.took < best.took)
			best = r;
	}
	return best;
}

int main(void)
{
	struct timespec fifth = { .tv_nsec = 200 * 1000 * 1000 };
	struct reading first = best(), last;

	nanosleep(&fifth, NULL);
	last = best();
	printf("%.0f\n", (last.ticks - first.ticks) * 1e6 / (last.nanoseconds - first.nanoseconds));
}

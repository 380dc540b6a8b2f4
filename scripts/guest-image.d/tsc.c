/*
 * Measures the rate of the time-stamp counter under QEMU's emulator (TCG), and writes
 * it into the kernel's command line.
 *
 * Linux compares the counter with the PIT: it starts the PIT, reads the counter, waits
 * until the PIT has run out and reads the counter again. When the host preempts the
 * virtual CPU between the first two steps, Linux sees a part of the time only. It finds
 * by the HPET that this is wrong ("PIT calibration deviates from HPET"), and believes
 * the PIT. Its clock then runs several times too fast.
 *
 * This program reads the ACPI PM timer between two reads of the counter. However long
 * the virtual CPU is preempted, the timer's value is of a moment between the two.
 * So the error is known, and more readings make it small.
 *
 * The loader calls measure_tsc in 32-bit mode, where nothing of the kernel runs yet.
 */
#include <cpuid.h>
#include <stddef.h>
#include <stdint.h>

#define OPTION "tsc_early_khz=0x"
#define DIGITS 8

#define COMMAND_LINE 0x228 /* in the boot parameters: the command line's address */

#define PM_TIMER_KHZ 3580 /* 3.579545 MHz, rounded for choosing lengths of time */
#define PM_TIMER_MASK 0xffffff
#define SHORTEST (10 * PM_TIMER_KHZ) /* 10 ms */
#define LONGEST (2000 * PM_TIMER_KHZ) /* 2 s; the timer begins anew after 4.6 s */
#define ENDLESS 35 /* 2^35 cycles are seconds: more than the timer can measure */
#define PRECISION 4096 /* a measurement is good to one part in so many */
#define ATTEMPTS 8

/* One reading: the timer had this value when the counter was between the two. */
struct reading {
	uint64_t before, after;
	uint32_t timer;
};

static int starts_with(const char *text, const char *with)
{
	while (*with)
		if (*text++ != *with++)
			return 0;
	return 1;
}

static int emulated(void)
{
	uint32_t eax, vendor[4] = { 0 };

	__cpuid(0x40000000, eax, vendor[0], vendor[1], vendor[2]);
	return starts_with((const char *)vendor, "TCGTCGTCGTCG");
}

/* Returns where the digits of the option are to be written; NULL without the option. */
static char *find_option(char *line)
{
	for (; *line; line++)
		if (starts_with(line, OPTION))
			return line + sizeof(OPTION) - 1;
	return NULL;
}

/* Returns the port of the PM timer, by the ACPI tables that the BIOS made; 0 without. */
static uint16_t timer_port(void)
{
	const char *root, *table;
	const uint32_t *tables;
	uint32_t i;

	for (root = (const char *)0xe0000; !starts_with(root, "RSD PTR "); root += 16)
		if (root >= (const char *)0xffff0)
			return 0;
	tables = *(const uint32_t *const *)(root + 16);
	if (!tables)
		return 0;
	for (i = 9; i < tables[1] / 4; i++) { /* behind a header of 36 bytes */
		table = (const char *)(uintptr_t)tables[i];
		if (starts_with(table, "FACP"))
			return *(const uint32_t *)(table + 76);
	}
	return 0;
}

static struct reading take(uint16_t port)
{
	struct reading r;

	r.before = __builtin_ia32_rdtsc();
	__asm__ volatile("inl %1, %0" : "=a"(r.timer) : "d"(port));
	r.after = __builtin_ia32_rdtsc();
	return r;
}

/* Divides by a number that is larger than the upper half: the quotient has 32 bits. */
static uint32_t divide(uint64_t n, uint32_t by)
{
	uint32_t quotient, rest;

	__asm__("divl %4" : "=a"(quotient), "=d"(rest)
		: "a"((uint32_t)n), "d"((uint32_t)(n >> 32)), "rm"(by));
	return quotient;
}

/* Returns the counter's rate: cycles in 1024 ticks of the timer; 0 if it is not known. */
static uint32_t rate(uint16_t port)
{
	struct reading first, now;
	uint64_t cycles, error;
	uint32_t ticks;

	first = take(port);
	do {
		now = take(port);
		ticks = (now.timer - first.timer) & PM_TIMER_MASK;
		cycles = now.after - first.before;
		error = (now.after - now.before) + (first.after - first.before);
		if (ticks > LONGEST || cycles >> ENDLESS)
			return 0;
	} while (ticks < SHORTEST || error > cycles / PRECISION);
	cycles -= error / 2;
	if (cycles >> 20 >= ticks) /* 3.8 THz: the timer began anew meanwhile */
		return 0;
	return divide(cycles << 10, ticks);
}

/* Returns the counter's rate in kHz, when two measurements agree; else 0. */
static uint32_t khz(uint16_t port)
{
	uint32_t one, two, apart;
	int i;

	for (i = 0; i < ATTEMPTS; i++) {
		one = rate(port);
		two = rate(port);
		apart = one > two ? one - two : two - one;
		if (one && two && apart <= one / (PRECISION / 4))
			/* 3579.545 kHz / 1024 */
			return divide((uint64_t)two * 3579545, 1024 * 1000);
	}
	return 0;
}

void measure_tsc(char *boot_parameters)
{
	char *digits = find_option(*(char **)(boot_parameters + COMMAND_LINE));
	uint16_t port = timer_port();
	uint32_t value;
	int i;

	if (!digits || !port || !emulated())
		return;
	value = khz(port);
	for (i = DIGITS - 1; i >= 0; i--, value >>= 4)
		digits[i] = "0123456789abcdef"[value & 15];
}

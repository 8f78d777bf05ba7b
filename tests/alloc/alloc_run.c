/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit test, once for each of its allocations, which then fails. A run may fail assertions; it must
 * end, and neither crash, leak, nor make a sanitizer report.
 *
 *	EPOCHFS_ALLOC_REPORT=FILE   lines of what was done are appended: "NAME RUNS ALLOCATIONS BAD"
 *	EPOCHFS_ALLOC_TEST=NAME     only this test
 *	EPOCHFS_ALLOC_NOT=NAME,...  not these
 *	EPOCHFS_ALLOC_CALLS=7-9     only these of its allocations
 *	EPOCHFS_ALLOC_PLACES=N      from each place (the N innermost functions on the stack) only the first of the program
 *	EPOCHFS_ALLOC_SAMPLE=N      N of them at random, by EPOCHFS_ALLOC_SEED
 *	EPOCHFS_ALLOC_LIMIT=S       a run that takes longer hangs (60)
 */
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/util/io.h"
#include "tests/alloc/alloc.h"
#include "tests/unit/unit.h"

/* run_units.py gives it to the sanitizers. */
#define REPORTED 99

static pid_t run_pid; /* in the process of a run: its own */

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);

	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* check's: how it ends a test whose assertion failed, and says which test begins. */
void __real__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code)
{
	/* What the test itself has is still on the stack. */
	if (run_pid && getpid() == run_pid && __lsan_do_recoverable_leak_check())
		code = REPORTED;
	__real__exit(code);
}

void __real_tcase_fn_start(const char *name, const char *file, int line);
void __wrap_tcase_fn_start(const char *name, const char *file, int line);
void __wrap_tcase_fn_start(const char *name, const char *file, int line)
{
	if (alloc_shared)
		snprintf(alloc_shared->test, sizeof(alloc_shared->test), "%s", name);
	__real_tcase_fn_start(name, file, line);
}

/* check wants one process to tell it of one test: what this one says goes nowhere. */
static void unplug_check(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct stat st;

	for (int fd = 3; fd < 64; fd++)
		if (fd != null && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0)
			dup2(null, fd);
	close(null);
}

static void become_run(int output, uint64_t fail_at)
{
	setpgid(0, 0);
	run_pid = getpid();
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	unplug_check();
	alloc_shared->count = 0;
	alloc_shared->failed = false;
	alloc_shared->fail_at = fail_at;
	alloc_begin();
}

/* Waits for the run and takes away what it left: its status, or -1 where it hung. */
static int wait_for(pid_t pid)
{
	uint64_t limit = number_of("EPOCHFS_ALLOC_LIMIT", 60) * 200;
	struct timespec pause = {.tv_nsec = 5000000}, first = {.tv_nsec = 1000000};
	bool hung = true;
	int status = 0;

	for (uint64_t i = 0; hung && i < limit; i++) {
		if (i)
			nanosleep(i < 20 ? &first : &pause, NULL);
		hung = waitpid(pid, &status, WNOHANG) == 0;
	}
	kill(-pid, SIGKILL);
	if (hung)
		waitpid(pid, &status, 0);
	return hung ? -1 : status;
}

/* What the run left on the disk; a volume is 16 MiB. */
static void clear_folder(void)
{
	if (io_remove_tree(AT_FDCWD, unit_root) || mkdir(unit_root, 0700))
		fprintf(stderr, "%s: %s\n", unit_root, strerror(errno));
}

static void print_file(int fd)
{
	char bytes[4096];
	ssize_t n;

	lseek(fd, 0, SEEK_SET);
	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		if (write(STDERR_FILENO, bytes, (size_t)n) < 0)
			return;
}

static void print_bad(uint64_t call, int status, int output)
{
	char text[1024];

	if (status < 0)
		fprintf(stderr, "\n== %s, allocation %llu: hangs\n", alloc_shared->test,
			(unsigned long long)call);
	else
		fprintf(stderr, "\n== %s, allocation %llu: status %#x\n", alloc_shared->test,
			(unsigned long long)call, status);
	for (int i = ALLOC_OWN; alloc_shared->failed && i < ALLOC_FRAMES && alloc_shared->stack[i];
	     i++) {
		__sanitizer_symbolize_pc((char *)alloc_shared->stack[i] - 1, "%f %S:%l", text,
					 sizeof(text));
		fprintf(stderr, "   failed in %s\n", text);
	}
	print_file(output);
}

/* True in the process of the run, which goes on with the test; in its parent whether it was bad. */
static bool run(uint64_t fail_at, bool *ret_bad)
{
	int output = memfd_create("output", MFD_CLOEXEC), status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		become_run(output, fail_at);
		return true;
	}
	status = wait_for(pid);
	/* Else it passed, or check ended it. */
	*ret_bad = status < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == REPORTED;
	if (*ret_bad)
		print_bad(fail_at, status, output);
	close(output);
	clear_folder();
	return false;
}

/* Whether nothing came from there before. */
static bool is_new(uint64_t place)
{
	uint64_t *seen = alloc_shared->seen, at = place >> 32;

	for (uint64_t i = 0; i < ALLOC_SEEN; i++, at++) {
		if (seen[at % ALLOC_SEEN] == place)
			return false;
		if (!seen[at % ALLOC_SEEN]) {
			seen[at % ALLOC_SEEN] = place;
			return true;
		}
	}
	return true;
}

static void choose_places(uint8_t *chosen, uint64_t count)
{
	for (uint64_t i = 1; i <= count && i < ALLOC_NOTED; i++)
		chosen[i] = is_new(alloc_shared->places[i]);
}

static void choose(uint8_t *chosen, uint64_t count)
{
	const char *calls = getenv("EPOCHFS_ALLOC_CALLS");
	uint64_t sample = number_of("EPOCHFS_ALLOC_SAMPLE", 0);

	if (calls && *calls) {
		char *end = NULL;
		uint64_t first = strtoull(calls, &end, 10);
		uint64_t last = *end == '-' ? strtoull(end + 1, NULL, 10) : first;

		for (uint64_t i = first; i <= last && i <= count; i++)
			chosen[i] = 1;
	} else if (sample && sample < count) {
		/* The test's name in the seed, so that not all tests fail at the same calls. */
		uint64_t x = number_of("EPOCHFS_ALLOC_SEED", 1);

		for (const char *p = alloc_shared->test; *p; p++)
			x = x * 31 + (uint8_t)*p;
		for (uint64_t i = 0; i < sample; i++) {
			x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
			chosen[1 + (x >> 33) % count] = 1;
		}
	} else if (number_of("EPOCHFS_ALLOC_PLACES", 0)) {
		choose_places(chosen, count);
	} else {
		memset(chosen, 1, count + 1);
	}
}

static void report(uint64_t runs, uint64_t count, uint64_t bad)
{
	int fd = open(getenv("EPOCHFS_ALLOC_REPORT"), O_WRONLY | O_APPEND | O_CLOEXEC);

	dprintf(fd, "%s %llu %llu %llu\n", alloc_shared->test, (unsigned long long)runs,
		(unsigned long long)count, (unsigned long long)bad);
	close(fd);
}

static bool is_wanted(const char *test)
{
	const char *only = getenv("EPOCHFS_ALLOC_TEST"), *not = getenv("EPOCHFS_ALLOC_NOT");
	size_t len = strlen(test);

	if (only && *only)
		return strcmp(only, test) == 0;
	for (const char *p = not ; p && (p = strstr(p, test)); p += len)
		if ((p == not || p[-1] == ',') && (p[len] == ',' || !p[len]))
			return false;
	return true;
}

/* Before check begins a process for each test. */
__attribute__((constructor)) static void start(void)
{
	if (!getenv("EPOCHFS_ALLOC_REPORT"))
		return;
	alloc_shared = mmap(NULL, sizeof(*alloc_shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (alloc_shared == MAP_FAILED)
		_exit(2);
}

void unit_each_run(void)
{
	uint64_t runs = 0, bad_runs = 0, count;
	static uint8_t *chosen; /* each run has it, too, and does not leak it */
	bool bad;

	if (!alloc_shared)
		return;
	alloc_shared->depth = (unsigned)number_of("EPOCHFS_ALLOC_PLACES", 0);
	if (run(0, &bad))
		return;
	alloc_shared->depth = 0;
	count = alloc_shared->count;
	if (bad)
		bad_runs++;
	if (is_wanted(alloc_shared->test)) {
		chosen = calloc(count + 1, 1);
		choose(chosen, count);
		for (uint64_t i = 1; i <= count; i++) {
			if (!chosen[i])
				continue;
			if (run(i, &bad))
				return;
			runs++;
			bad_runs += bad;
		}
		free(chosen);
		report(runs, count, bad_runs);
	}
	/* check has nothing to run here any more. */
	__real__exit(0);
}

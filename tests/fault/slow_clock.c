/* SPDX-License-Identifier: Apache-2.0 */
/* Both clocks of lib/util/clock.h show one time here; kernel and /proc know nothing of it, so what they say is translated. */
#include "tests/fault/slow_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/util/lock.h"

/* How soon a waiting thread sees that time has jumped. */
#define SLICE_NS (5 * NS_PER_MS)
/* Who waits for no longer than this waits for other threads and not for a time: as long as on the machine's clock. It is still at work. */
#define MOMENT_NS (25 * NS_PER_MS)
#define AT_WORK	  0

int64_t __real_clock_wall_ns(void);
int64_t __real_clock_mono_ns(void);
int64_t __real_process_started_ns(pid_t pid);
int __real_cond_wait_until_at(pthread_cond_t *cond, struct mutex *m, int64_t deadline_ns,
			      const char *file, int line);
int __real_fstat64(int fd, struct stat *st);
int64_t __wrap_clock_wall_ns(void);
int64_t __wrap_clock_mono_ns(void);
int64_t __wrap_process_started_ns(pid_t pid);
int __wrap_cond_wait_until_at(pthread_cond_t *cond, struct mutex *m, int64_t deadline_ns,
			      const char *file, int line);
int __wrap_fstat64(int fd, struct stat *st);

static struct slow_clock *table;

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("EPOCHFS_SLOW_CLOCK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *map;

	if (!path)
		return;
	map = fd < 0 ? MAP_FAILED
		     : mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror(path);
		_exit(2);
	}
	close(fd);
	table = map;
}

/* What this clock shows at a time of the machine. */
static int64_t shown_ns(int64_t real_ns)
{
	int64_t since = real_ns - table->begun_ns, sum = 0;

	if (since < 0)
		return real_ns;
	for (int64_t i = 0; i < table->jumps && table->jump[i].at_ns <= real_ns; i++)
		sum += table->jump[i].by_ns;
	return table->begun_ns + since / SLOWNESS + sum;
}

int64_t __wrap_clock_wall_ns(void)
{
	int64_t real = __real_clock_wall_ns();

	return table ? shown_ns(real) : real;
}

int64_t __wrap_clock_mono_ns(void)
{
	return table ? __wrap_clock_wall_ns() - table->begun_ns + NS_PER_S : __real_clock_mono_ns();
}

int64_t __wrap_process_started_ns(pid_t pid)
{
	int64_t ns = __real_process_started_ns(pid);

	/* The real one goes back from what the wall clock says. */
	return table && ns ? shown_ns(__real_clock_wall_ns() - (__wrap_clock_wall_ns() - ns)) : ns;
}

int __wrap_fstat64(int fd, struct stat *st)
{
	int result = __real_fstat64(fd, st);

	/* When a file was changed; its other times may be anybody's. */
	if (table && !result)
		st->st_ctim = clock_timespec(shown_ns(clock_ns(st->st_ctim)));
	return result;
}

/* ---- waits ---- */

static unsigned place_take(int64_t deadline_ns)
{
	for (unsigned i = 0; i < SLOW_CLOCK_WAITS; i++) {
		int64_t nobody = 0;

		if (!atomic_compare_exchange_strong(&table->wait[i].thread, &nobody,
						    (int64_t)gettid()))
			continue;
		table->wait[i].deadline_ns = deadline_ns;
		return i;
	}
	abort();
}

static void place_leave(unsigned i)
{
	table->wait[i].deadline_ns = INT64_MAX;
	table->wait[i].thread = 0;
}

int __wrap_cond_wait_until_at(pthread_cond_t *cond, struct mutex *m, int64_t deadline_ns,
			      const char *file, int line)
{
	int64_t left = table ? deadline_ns - __wrap_clock_mono_ns() : 0;
	int result = -ETIMEDOUT;
	unsigned place;

	if (!table)
		return __real_cond_wait_until_at(cond, m, deadline_ns, file, line);
	place = place_take(left <= MOMENT_NS ? AT_WORK : deadline_ns);
	if (left <= MOMENT_NS)
		result = __real_cond_wait_until_at(cond, m, __real_clock_mono_ns() + left, file,
						   line);
	while (left > MOMENT_NS && result == -ETIMEDOUT && __wrap_clock_mono_ns() < deadline_ns)
		result = __real_cond_wait_until_at(cond, m, __real_clock_mono_ns() + SLICE_NS, file,
						   line);
	place_leave(place);
	return result;
}

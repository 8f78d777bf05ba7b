/* SPDX-License-Identifier: Apache-2.0 */
/* Waits are entries of one list; whoever leaves no thread running lets the clock jump. */
#include "tests/protocols/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/util/lock.h"

#define PROCESSES 1024
#define JUMPS	  4096
#define LONG_NS	  (100 * NS_PER_MS)
#define NEVER	  INT64_MAX

int64_t __real_clock_wall_ns(void);
int64_t __real_process_started_ns(pid_t pid);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __real_pthread_join(pthread_t thread, void **ret);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int64_t __wrap_clock_wall_ns(void);
int64_t __wrap_clock_mono_ns(void);
int64_t __wrap_process_started_ns(pid_t pid);
int __wrap_cond_wait_until_at(pthread_cond_t *cond, struct mutex *m, int64_t deadline_ns,
			      const char *file, int line);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __wrap_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_usleep(useconds_t us);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __real_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st);

/* A thread that waits. */
struct wait {
	struct wait *next;
	const pthread_cond_t *cond; /* NULL: for its time alone */
	int64_t deadline_ns;
	bool woken, expired;
	pthread_cond_t wake;
};

/* Guards all below; taken under any lock, and takes none. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wait *waits;
static unsigned running = 1; /* threads that do not wait */
static int64_t now = NS_PER_S;
static struct {
	pid_t pid;
	int64_t jumped;
} started[PROCESSES];
static unsigned started_count;
/* The newest jumps: when, by the clock that the kernel gives files their times by, and what `now` was from then on. */
static struct {
	int64_t at_ns, now;
} jumped[JUMPS];
static uint64_t jump_count;

/* ---- time ---- */

static int64_t kernel_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return clock_ns(ts);
}

/* What `now` was at a time of the kernel's. */
static int64_t now_at(int64_t at_ns)
{
	int64_t then = NS_PER_S;

	pthread_mutex_lock(&lock);
	for (uint64_t i = jump_count > JUMPS ? jump_count - JUMPS : 0; i < jump_count; i++)
		if (jumped[i % JUMPS].at_ns <= at_ns)
			then = jumped[i % JUMPS].now;
	pthread_mutex_unlock(&lock);
	return then;
}

/* When a file was changed. */
int __wrap_fstat64(int fd, struct stat *st)
{
	int result = __real_fstat64(fd, st);

	if (!result)
		st->st_ctim = clock_timespec(clock_ns(st->st_ctim) + now_at(clock_ns(st->st_ctim)));
	return result;
}

/* What was changed until now has an earlier time than what is changed from now on. A file may have an exact time (since Linux 6.13), of which
 * kernel_ns lags behind, on a loaded machine by more than a tick. */
static void part_changes(void)
{
	const struct timespec moment = {.tv_nsec = NS_PER_MS / 2};
	int64_t before = __real_clock_wall_ns();

	while (kernel_ns() <= before)
		__real_nanosleep(&moment, NULL);
}

/* Files have the kernel's times, so this one goes on between the jumps. */
int64_t __wrap_clock_wall_ns(void)
{
	return __real_clock_wall_ns() + now;
}

int64_t __wrap_clock_mono_ns(void)
{
	return now;
}

int64_t __wrap_process_started_ns(pid_t pid)
{
	int64_t real = __real_process_started_ns(pid);

	/* The real one adds what the wall clock says now. */
	for (unsigned i = 0; real && i < PROCESSES; i++)
		if (started[i].pid == pid)
			return real - now + started[i].jumped;
	return real;
}

void clock_process_started(pid_t pid)
{
	started[started_count % PROCESSES].pid = pid;
	started[started_count++ % PROCESSES].jumped = now;
}

/* ---- waits ---- */

static void wake(struct wait *w)
{
	if (w->woken)
		return;
	w->woken = true;
	running++;
	__real_pthread_cond_signal(&w->wake);
}

static void jump(void)
{
	int64_t next = NEVER;

	for (struct wait *w = waits; w; w = w->next)
		if (w->deadline_ns < next)
			next = w->deadline_ns;
	if (next == NEVER) {
		fputs("all threads wait, and none for a time\n", stderr);
		abort();
	}
	if (next > now) {
		now = next;
		jumped[jump_count % JUMPS].at_ns = kernel_ns();
		jumped[jump_count++ % JUMPS].now = now;
	}
	for (struct wait *w = waits; w; w = w->next)
		if (w->deadline_ns <= now) {
			w->expired = true;
			wake(w);
		}
}

static void unlink_wait(struct wait *w)
{
	struct wait **p = &waits;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
}

/* Gives the mutex (may be NULL) back meanwhile. 0, or ETIMEDOUT. */
static int wait_for(const pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns)
{
	struct wait w = {
		.cond = cond, .deadline_ns = deadline_ns, .wake = PTHREAD_COND_INITIALIZER};

	pthread_mutex_lock(&lock);
	w.next = waits;
	waits = &w;
	if (mutex)
		pthread_mutex_unlock(mutex);
	if (!--running)
		jump();
	while (!w.woken)
		__real_pthread_cond_wait(&w.wake, &lock);
	unlink_wait(&w);
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&w.wake);
	if (mutex)
		pthread_mutex_lock(mutex);
	return w.expired ? ETIMEDOUT : 0;
}

void clock_pass(int64_t ns)
{
	if (ns >= LONG_NS)
		part_changes();
	wait_for(NULL, NULL, now + ns);
}

int __wrap_cond_wait_until_at(pthread_cond_t *cond, struct mutex *m, int64_t deadline_ns,
			      const char *file, int line)
{
	(void)file, (void)line;
	return -wait_for(cond, &m->own, deadline_ns);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return wait_for(cond, mutex, NEVER);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
	pthread_mutex_lock(&lock);
	for (struct wait *w = waits; w; w = w->next)
		if (w->cond == cond)
			wake(w);
	pthread_mutex_unlock(&lock);
	return 0;
}

/* More than one may wake: whoever waits looks again. */
int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
	return __wrap_pthread_cond_broadcast(cond);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	clock_pass(clock_ns(*time));
	return 0;
}

int __wrap_usleep(useconds_t us)
{
	clock_pass((int64_t)us * 1000);
	return 0;
}

/* ---- threads ---- */

/* One of ours that was not joined yet. */
struct thread {
	struct thread *next;
	pthread_t id;
	void *(*fn)(void *);
	void *arg;
	bool ended;
	bool joined; /* somebody waits for its end, and runs then in its place */
};

static struct thread *threads;

static void *thread_run(void *arg)
{
	struct thread *t = arg;
	void *result = t->fn(t->arg);

	pthread_mutex_lock(&lock);
	t->ended = true;
	if (!t->joined && !--running)
		jump();
	pthread_mutex_unlock(&lock);
	return result;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	struct thread *t = calloc(1, sizeof(*t));
	int error;

	if (!t)
		abort();
	*t = (struct thread){.fn = fn, .arg = arg};
	pthread_mutex_lock(&lock);
	error = __real_pthread_create(thread, attr, thread_run, t);
	if (!error) {
		running++;
		t->id = *thread;
		t->next = threads;
		threads = t;
	} else {
		free(t);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* Takes it out of the list. */
static struct thread *thread_take(pthread_t id)
{
	struct thread **p = &threads, *t;

	while (!pthread_equal((*p)->id, id))
		p = &(*p)->next;
	t = *p;
	*p = t->next;
	return t;
}

int __wrap_pthread_join(pthread_t id, void **ret)
{
	struct thread *t;
	int error;

	pthread_mutex_lock(&lock);
	t = thread_take(id);
	t->joined = !t->ended;
	if (t->joined && !--running)
		jump();
	pthread_mutex_unlock(&lock);
	error = __real_pthread_join(id, ret);
	free(t);
	return error;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that read and answer requests, and the order of closes. */
#include "fs/loop.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/vfs.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

#define THREADS_MAX  64
#define THREADS_IDLE 8

/* How long the reader may take over one request before another thread reads on. */
#define WATCH_NS NS_PER_MS
/* Without requests for so many of these the watch sleeps. */
#define WATCH_QUIET 50

/* A WRITE of more than this is answered beside others. */
#define QUICK_BYTES_MAX (80u << 10)

/* A RELEASE that was read and is not done. */
struct release {
	uint64_t number;
	bool pending;
	struct release *prev, *next;
};

struct worker {
	struct loop *loop;
	pthread_t thread;
	struct fuse_buf buf;
	bool reader;	 /* this thread holds the reader's role; guarded by the loop's lock */
	uint64_t unique; /* of its request, as the kernel sent it */
	int64_t read_ns; /* monotonic; when its request was read */
	uint64_t closes; /* number of the last RELEASE read before its request */
	struct release release;
	bool defer;
	struct invalidation *deferred, **deferred_end;
	struct worker *next_ended;
};

struct loop {
	struct fs_mount *m;
	int ended_fd;
	pthread_t watch;
	struct mutex lock;
	/* All below is guarded by lock. */
	pthread_cond_t role_free;  /* the reader's role is to be had, or the loop ended */
	pthread_cond_t close_done; /* a RELEASE is done */
	pthread_cond_t gone;	   /* the last thread ended */
	pthread_cond_t watch_wake; /* there are requests again, or the loop ended */
	bool role_taken, ended;
	bool stopping;	     /* loop_stop: nobody reads any more */
	struct worker *busy; /* the reader, while it answers a request */
	uint64_t reads;	     /* how many requests were read */
	bool watch_sleeps;
	unsigned threads, idle;
	unsigned in_kernel;	      /* threads that wait for the kernel */
	uint64_t last_release;	      /* number of the last one read */
	struct release first_release; /* head of a ring, in order of numbers */
	struct worker *ended_workers; /* to be joined */
};

/* The worker of this thread: handlers get no argument of ours. */
static __thread struct worker *self;

int loop_new(struct fs_mount *m, struct loop **ret_loop)
{
	struct loop *l = calloc(1, sizeof(*l));
	int error;

	if (!l)
		return -ENOMEM;
	l->ended_fd = eventfd(0, EFD_CLOEXEC);
	error = l->ended_fd < 0 ? -errno : cond_init_mono(&l->gone);
	if (!error) {
		error = cond_init_mono(&l->watch_wake);
		if (error)
			pthread_cond_destroy(&l->gone);
	}
	if (error) {
		if (l->ended_fd >= 0)
			close(l->ended_fd);
		free(l);
		return error;
	}
	l->m = m;
	mutex_init(&l->lock, LOCK_FS_LOOP);
	pthread_cond_init(&l->role_free, NULL);
	pthread_cond_init(&l->close_done, NULL);
	l->first_release.prev = l->first_release.next = &l->first_release;
	*ret_loop = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	pthread_cond_destroy(&l->watch_wake);
	pthread_cond_destroy(&l->gone);
	pthread_cond_destroy(&l->close_done);
	pthread_cond_destroy(&l->role_free);
	mutex_destroy(&l->lock);
	close(l->ended_fd);
	free(l);
}

int loop_ended_fd(const struct loop *l)
{
	return l->ended_fd;
}

/* The kernel marks by it what it sends again (FUSE_UNIQUE_RESEND of Linux 6.9). */
#define UNIQUE_RESENT (UINT64_C(1) << 63)

uint64_t loop_request_unique(void)
{
	return self ? self->unique & ~UNIQUE_RESENT : 0;
}

bool loop_request_resent(void)
{
	return self && self->unique & UNIQUE_RESENT;
}

int64_t loop_request_age(void)
{
	return self ? clock_mono_ns() - self->read_ns : INT64_MAX;
}

/* ---- the order of closes ---- */

static void release_read_locked(struct loop *l, struct release *r)
{
	struct release *head = &l->first_release;

	r->number = ++l->last_release;
	r->pending = true;
	r->prev = head->prev;
	r->next = head;
	head->prev->next = r;
	head->prev = r;
}

static bool closes_done_locked(const struct loop *l, uint64_t up_to)
{
	const struct release *first = l->first_release.next;

	return first == &l->first_release || first->number > up_to;
}

void loop_release_done(void)
{
	struct release *r = &self->release;
	struct loop *l = self->loop;

	SCOPED_LOCK(&l->lock);
	if (!r->pending)
		return;
	r->pending = false;
	r->prev->next = r->next;
	r->next->prev = r->prev;
	pthread_cond_broadcast(&l->close_done);
}

void loop_wait_closes(void)
{
	struct loop *l = self->loop;

	SCOPED_LOCK(&l->lock);
	while (!closes_done_locked(l, self->closes))
		cond_wait(&l->close_done, &l->lock);
}

/* Whether it is likely to be answered in a moment, from the local state: then the reader does. */
static bool is_quick(struct fs_mount *m, const struct fuse_in_header *head)
{
	enum pace pace = opcode_pace(head->opcode);
	const struct node *n;

	if (pace != PACE_BY_NODE)
		return pace == PACE_QUICK;
	n = nodes_find(m->nodes, head->nodeid);
	return n && n->kind == NODE_LIVE && head->len <= QUICK_BYTES_MAX;
}

/* ---- threads ---- */

static void *worker_main(void *arg);

static void join_ended_locked(struct loop *l)
{
	while (l->ended_workers) {
		cleanup_free struct worker *w = l->ended_workers;

		l->ended_workers = w->next_ended;
		pthread_join(w->thread, NULL);
	}
}

static int start_locked(struct loop *l)
{
	struct worker *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	join_ended_locked(l);
	w->loop = l;
	r = thread_start(&w->thread, NULL, worker_main, w);
	if (r) {
		free(w);
		return r;
	}
	l->threads++;
	return 0;
}

/* Waits for the reader's role: false where this thread is to end. */
static bool take_role(struct worker *w)
{
	struct loop *l = w->loop;

	SCOPED_LOCK(&l->lock);
	if (w->reader) {
		l->busy = NULL;
		if (!l->stopping)
			return true;
		w->reader = false;
	}
	while (l->role_taken && !l->ended && !l->stopping) {
		if (l->idle >= THREADS_IDLE)
			return false;
		l->idle++;
		cond_wait(&l->role_free, &l->lock);
		l->idle--;
	}
	if (l->ended || l->stopping)
		return false;
	l->role_taken = true;
	w->reader = true;
	return true;
}

/* The role is to be had. */
static void find_reader_locked(struct loop *l)
{
	int r;

	if (l->role_taken || l->stopping)
		return;
	if (l->idle) {
		pthread_cond_signal(&l->role_free);
	} else if (l->threads && l->threads - l->in_kernel < THREADS_MAX) {
		r = start_locked(l);
		if (r < 0)
			log_error("cannot start a thread (%s): requests wait for each other",
				  strerror(-r));
	}
}

/* Lets another thread read. */
static void give_role_locked(struct worker *w)
{
	struct loop *l = w->loop;

	if (!w->reader)
		return;
	w->reader = false;
	l->role_taken = false;
	l->busy = NULL;
	find_reader_locked(l);
}

static void give_role(struct worker *w)
{
	SCOPED_LOCK(&w->loop->lock);
	give_role_locked(w);
}

void loop_let_others_read(void)
{
	if (self)
		give_role(self);
}

void loop_kernel_begin(void)
{
	if (!self)
		return;
	SCOPED_LOCK(&self->loop->lock);
	self->loop->in_kernel++;
	give_role_locked(self);
	find_reader_locked(self->loop);
}

void loop_kernel_end(void)
{
	if (!self)
		return;
	SCOPED_LOCK(&self->loop->lock);
	self->loop->in_kernel--;
}

static void end_loop(struct loop *l)
{
	const uint64_t one = 1;

	SCOPED_LOCK(&l->lock);
	if (l->ended)
		return;
	l->ended = true;
	l->m->gone = true;
	pthread_cond_broadcast(&l->role_free);
	pthread_cond_signal(&l->watch_wake);
	if (write(l->ended_fd, &one, sizeof(one)) < 0)
		log_error("eventfd: %s", strerror(errno));
}

/*
 * The watch: takes the reader's role from a thread that is still at the request that it was at a
 * moment ago. So quick requests cost no change of threads, and slow ones hold up nobody for long.
 */
static void *watch_main(void *arg)
{
	struct loop *l = arg;
	uint64_t seen = 0;
	unsigned quiet = 0;

	SCOPED_LOCK(&l->lock);
	while (!l->ended) {
		if (quiet > WATCH_QUIET) {
			l->watch_sleeps = true;
			cond_wait(&l->watch_wake, &l->lock);
			l->watch_sleeps = false;
			quiet = 0;
		} else {
			cond_wait_until(&l->watch_wake, &l->lock, clock_mono_ns() + WATCH_NS);
		}
		if (l->reads == seen && l->busy)
			give_role_locked(l->busy);
		quiet = l->reads == seen ? quiet + 1 : 0;
		seen = l->reads;
	}
	return NULL;
}

/* ---- one request ---- */

/* Reads the next request: 1, 0 at the end of the connection, -errno. */
static int receive(struct worker *w)
{
	struct fuse_session *se = w->loop->m->se;
	int r;

	do
		r = fuse_session_receive_buf(se, &w->buf);
	while ((r == -EINTR || r == -EAGAIN || r == -ENOENT) && !fuse_session_exited(se));
	if (r > 0)
		return 1;
	return r == -ENODEV || r == -ECONNABORTED || fuse_session_exited(se) ? 0 : r;
}

/*
 * With the request just read: notes a close, gives the reader's role away where the answer takes
 * long, and waits for closes before it.
 */
static void before_request(struct worker *w)
{
	struct loop *l = w->loop;
	struct fuse_in_header head = {0};
	bool is_gated;

	/* In a pipe lie only requests of many bytes: WRITE. */
	if (!(w->buf.flags & FUSE_BUF_IS_FD) && w->buf.size >= sizeof(head))
		memcpy(&head, w->buf.mem, sizeof(head));
	is_gated = opcode_waits_for_closes(head.opcode);
	w->unique = head.unique;
	w->read_ns = clock_mono_ns();

	SCOPED_LOCK(&l->lock);
	w->closes = l->last_release;
	if (head.opcode == FUSE_RELEASE)
		release_read_locked(l, &w->release);
	if (is_gated && !closes_done_locked(l, w->closes)) {
		give_role_locked(w);
		while (!closes_done_locked(l, w->closes))
			cond_wait(&l->close_done, &l->lock);
	} else if (!is_quick(l->m, &head)) {
		give_role_locked(w);
	}
	l->reads++;
	if (!w->reader)
		return;
	l->busy = w;
	if (l->watch_sleeps)
		pthread_cond_signal(&l->watch_wake);
}

static void answer(struct worker *w)
{
	struct invalidation *list;

	w->deferred = NULL;
	w->deferred_end = &w->deferred;
	w->defer = true;
	fuse_session_process_buf(w->loop->m->se, &w->buf);
	w->defer = false;
	loop_release_done();
	list = w->deferred;
	if (list)
		invalidate_run(w->loop->m, list);
}

int loop_one(struct loop *l)
{
	struct worker w = {.loop = l};
	int r = receive(&w);

	if (r > 0) {
		self = &w;
		answer(&w);
		self = NULL;
	}
	free(w.buf.mem);
	return r > 0 ? 0 : r < 0 ? r : -ENOTCONN;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct loop *l = w->loop;
	int r;

	self = w;
	while (take_role(w)) {
		r = receive(w);
		if (r <= 0) {
			if (r < 0)
				log_error("reading requests from the kernel: %s", strerror(-r));
			end_loop(l);
			break;
		}
		before_request(w);
		answer(w);
	}
	free(w->buf.mem);
	SCOPED_LOCK(&l->lock);
	w->next_ended = l->ended_workers;
	l->ended_workers = w;
	if (--l->threads == 0)
		pthread_cond_signal(&l->gone);
	return NULL;
}

static void join_workers(struct loop *l)
{
	SCOPED_LOCK(&l->lock);
	while (l->threads)
		cond_wait(&l->gone, &l->lock);
	join_ended_locked(l);
}

void loop_join(struct loop *l)
{
	join_workers(l);
	pthread_join(l->watch, NULL);
}

static int start_first(struct loop *l)
{
	SCOPED_LOCK(&l->lock);
	return start_locked(l);
}

/* Something that the reader reads, so that it looks whether it is to go on. */
static void *wake_reader(void *arg)
{
	const struct loop *l = arg;
	struct statfs ignored;

	(void)statfs(l->m->mountpoint, &ignored);
	return NULL;
}

void loop_stop(struct loop *l, int64_t timeout_ns)
{
	int64_t deadline = clock_mono_ns() + timeout_ns;
	pthread_t waker;

	SCOPED_LOCK(&l->lock);
	l->stopping = true;
	pthread_cond_broadcast(&l->role_free);
	if (thread_start(&waker, NULL, wake_reader, l) == 0)
		pthread_detach(waker);
	while (l->threads && cond_wait_until(&l->gone, &l->lock, deadline) != -ETIMEDOUT)
		;
	join_ended_locked(l);
}

int loop_start(struct loop *l)
{
	int r = thread_start(&l->watch, NULL, watch_main, l);

	if (r < 0)
		return r;
	r = start_first(l);
	if (r < 0) {
		end_loop(l);
		loop_join(l);
	}
	return r;
}

/* ---- deferred invalidations ---- */

bool loop_defer(struct invalidation *i)
{
	if (!self || !self->defer)
		return false;
	i->next = NULL;
	*self->deferred_end = i;
	self->deferred_end = &i->next;
	return true;
}

void loop_defer_off(void)
{
	if (self)
		self->defer = false;
}

void loop_defer_on(void)
{
	if (self)
		self->defer = true;
}

/* ---- what a request's kind says ---- */

bool opcode_waits_for_closes(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case FUSE_SETATTR:
	case FUSE_READLINK:
	case FUSE_SYMLINK:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_OPEN:
	case FUSE_CREATE:
	case FUSE_SETXATTR:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_FSYNCDIR:
	case FUSE_STATFS:
		return true;
	default:
		return false;
	}
}

enum pace opcode_pace(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_OPENDIR:
	case FUSE_RELEASEDIR:
		return PACE_QUICK;
	case FUSE_READ:
	case FUSE_LSEEK:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		return PACE_SLOW;
	default:
		return PACE_BY_NODE;
	}
}

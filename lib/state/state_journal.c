/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal (the WAL): damage in it, and moving it into the database.
 *
 * SQLite believes it up to the first frame whose checksum is wrong, and
 * takes what follows for the rest of a write that was cut off: a bit that flipped in the middle would
 * silently take the commits behind it away. The format is documented at sqlite.org/fileformat2.html,
 * section 4: a header of 32 bytes, then frames of 24 bytes and a page each, all numbers big-endian,
 * checksums running on from frame to frame.
 */
#include "lib/state/state_db.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/state/reserve.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

#define HEADER	     32
#define FRAME	     24
#define MAGIC	     0x377f0682u /* the last bit: words of checksums are big-endian */
#define PAGE_MIN     512
#define PAGE_MAX     65536
#define HEADER_SALTS 16 /* where they begin */
#define FRAME_SALTS  8
#define SALTS	     8

struct journal {
	int fd;
	uint32_t page;
	bool big; /* of words in checksums */
	uint32_t sum[2];
	unsigned char salts[SALTS];
	unsigned char frame[FRAME + PAGE_MAX];
};

static uint32_t big32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t little32(const unsigned char *p)
{
	return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static void add(struct journal *j, const unsigned char *p, size_t len)
{
	for (size_t i = 0; i + 8 <= len; i += 8) {
		j->sum[0] += (j->big ? big32(p + i) : little32(p + i)) + j->sum[1];
		j->sum[1] += (j->big ? big32(p + i + 4) : little32(p + i + 4)) + j->sum[0];
	}
}

static bool sum_is(const struct journal *j, const unsigned char *p)
{
	return big32(p) == j->sum[0] && big32(p + 4) == j->sum[1];
}

/* 1: a sound header; 0: none; -errno. */
static int read_header(struct journal *j)
{
	unsigned char head[HEADER];
	ssize_t n = io_pread_some(j->fd, head, sizeof(head), 0);

	if (n < (ssize_t)sizeof(head))
		return n < 0 ? (int)n : 0;
	j->page = big32(head + 8);
	j->big = big32(head) & 1;
	memcpy(j->salts, head + HEADER_SALTS, SALTS);
	add(j, head, HEADER - SALTS);
	if ((big32(head) & ~1u) != MAGIC || j->page < PAGE_MIN || j->page > PAGE_MAX ||
	    j->page & (j->page - 1) || !sum_is(j, head + HEADER - SALTS))
		return -EUCLEAN;
	return 1;
}

/* 1: read; 0: the end. */
static int read_frame(struct journal *j, uint64_t number)
{
	size_t len = FRAME + j->page;
	ssize_t n = io_pread_some(j->fd, j->frame, len, HEADER + number * len);

	return n < 0 ? (int)n : n == (ssize_t)len;
}

static bool of_this_round(const struct journal *j)
{
	return memcmp(j->frame + FRAME_SALTS, j->salts, SALTS) == 0;
}

static bool frame_is_sound(struct journal *j)
{
	if (!of_this_round(j))
		return false;
	add(j, j->frame, FRAME_SALTS);
	add(j, j->frame + FRAME, j->page);
	return sum_is(j, j->frame + FRAME_SALTS + SALTS);
}

static int check(struct journal *j)
{
	uint64_t number = 0, bad;
	int got = read_header(j);

	if (got <= 0)
		return got;
	while ((got = read_frame(j, number)) > 0 && frame_is_sound(j))
		number++;
	/* The first may be half written, by a transaction that was never committed. One that ends a
	 * transaction behind it says that the first had been there. */
	for (bad = number; got > 0; got = read_frame(j, ++number))
		if (number > bad && of_this_round(j) && big32(j->frame + 4))
			return -EUCLEAN;
	return got;
}

int state_check_journal(int cache_dirfd)
{
	cleanup_close int fd =
		openat(cache_dirfd, "state.db-wal", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct journal *j;
	int error;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	j->fd = fd;
	error = check(j);
	free(j);
	return error;
}

/* ---- moving it into the database ---- */

/*
 * Moves the WAL into the database on a thread and a connection of its own: a checkpoint waits for
 * the disk, and a commit holds the volume's lock. A passive checkpoint lets writers go on; only
 * where they are faster than it for long, or the disk is full, does a blocking one end the WAL, and
 * then little is left to move.
 */

#define WAL_PAGE       (24 + 4096)
#define WAL_PAGES      1000 /* after so many new pages of 4 KiB a checkpoint begins */
#define WAL_PAGES_LONG 8192
/* On a full disk a WAL of so many pages does not grow where it can start over; what one transaction
 * writes should fit into the second number. */
#define WAL_PAGES_FULL	   64
#define WAL_PAGES_ONCE	   16
#define BLOCKING_BUSY_MAX  20
#define BLOCKING_BUSY_STEP NS_PER_MS

struct checkpointer {
	sqlite3 *db;
	const struct reserve *reserve;
	pthread_t thread;
	struct mutex lock; /* guards what follows; taken inside the volume's lock */
	pthread_cond_t wake, done;
	bool wanted, stop;
	int pages; /* in the WAL after the last commit */
	int moved; /* of them already in the database */
};

/* After each commit, with the volume's lock held. */
static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct checkpointer *c = arg;
	SCOPED_LOCK(&c->lock);

	(void)db;
	(void)name;
	if (pages < c->moved) /* the WAL started over */
		c->moved = 0;
	c->pages = pages;
	if (pages - c->moved >= WAL_PAGES && !c->wanted) {
		c->wanted = true;
		pthread_cond_signal(&c->wake);
	}
	return SQLITE_OK;
}

/* A blocking checkpoint holds writers up while it waits for readers: not for long. */
static int on_busy(void *arg, int tries)
{
	struct timespec pause = clock_timespec(BLOCKING_BUSY_STEP);

	(void)arg;
	if (tries >= BLOCKING_BUSY_MAX)
		return 0;
	nanosleep(&pause, NULL);
	return 1;
}

/* The number of the WAL's pages that are in the database now. */
static int checkpoint(struct checkpointer *c)
{
	int pages = -1, moved = -1;
	int rc = sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &moved);

	if (rc == SQLITE_OK && (pages >= WAL_PAGES_LONG || reserve_missing(c->reserve)))
		rc = sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_RESTART, &pages,
					       &moved);
	if (rc != SQLITE_OK && rc != SQLITE_BUSY)
		db_error(c->db, rc);
	return moved > 0 ? moved : 0;
}

static void *checkpointer_main(void *arg)
{
	struct checkpointer *c = arg;

	mutex_lock(&c->lock);
	while (!c->stop) {
		int moved;

		if (!c->wanted) {
			cond_wait(&c->wake, &c->lock);
			continue;
		}
		mutex_unlock(&c->lock);
		moved = checkpoint(c);
		mutex_lock(&c->lock);
		c->moved = moved;
		c->wanted = false;
		pthread_cond_broadcast(&c->done);
	}
	mutex_unlock(&c->lock);
	return NULL;
}

void checkpointer_make_room(struct state *s)
{
	struct checkpointer *c = s->checkpointer;
	struct stat st;

	if (!c || !reserve_missing(s->reserve))
		return;
	SCOPED_LOCK(&c->lock);
	if (c->pages < WAL_PAGES_FULL || c->pages == c->moved || fstat(s->wal_fd, &st) < 0 ||
	    (int64_t)(c->pages + WAL_PAGES_ONCE) * WAL_PAGE <= st.st_size)
		return;
	c->wanted = true;
	pthread_cond_signal(&c->wake);
	/* Its thread takes no lock of the volume's. */
	while (c->wanted)
		cond_wait_under(&c->done, &c->lock);
}

static void checkpointer_free(struct checkpointer *c)
{
	sqlite3_close(c->db);
	pthread_cond_destroy(&c->wake);
	pthread_cond_destroy(&c->done);
	mutex_destroy(&c->lock);
	free(c);
}

int checkpointer_start(struct state *s, const char *path)
{
	struct checkpointer *c = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	c->reserve = s->reserve;
	mutex_init(&c->lock, LOCK_CHECKPOINTER);
	pthread_cond_init(&c->wake, NULL);
	pthread_cond_init(&c->done, NULL);
	error = db_connect(s->vfs, path, SQLITE_OPEN_READWRITE, &c->db);
	if (!error) {
		sqlite3_busy_handler(c->db, on_busy, NULL);
		error = thread_start(&c->thread, NULL, checkpointer_main, c);
	}
	if (error) {
		checkpointer_free(c);
		return error;
	}
	s->checkpointer = c;
	sqlite3_wal_hook(s->db, on_commit, c);
	return 0;
}

void checkpointer_stop(struct state *s)
{
	struct checkpointer *c = s->checkpointer;

	if (!c)
		return;
	sqlite3_wal_hook(s->db, NULL, NULL);
	mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	checkpointer_free(c);
	s->checkpointer = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the write pipeline costs and saves: GB/s of each stage, stored over raw, of real files. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/remote/encrypt.h"
#include "lib/store/cutter.h"
#include "lib/store/filter.h"
#include "lib/store/gbs.h"
#include "lib/util/hash.h"
#include "lib/util/io.h"

/*
 *	bench_pipeline FILE...
 *
 * Each file is cut, copied, hashed four chunks at a time, encoded and decoded, as an upload and a read do,
 * on one thread; times are of this thread's processor. "up" is all that an upload does of it, in seconds a GB. Chunks that an earlier file had are counted
 * once. Frames are encrypted and opened, too, as those of an encrypted volume are. Without a file, tests/bench/make_checkpoints.py makes some with PyTorch.
 */
enum stage { CUT, COPY, HASH, ENCODE, ENCRYPT, DECRYPT, DECODE, GBS, STAGE_COUNT };

static const char *const stage_names[STAGE_COUNT] = {"cut",	"copy",	   "sha256", "encode",
						     "encrypt", "decrypt", "decode", "gbs 4"};

struct totals {
	uint64_t raw;	 /* bytes of files */
	uint64_t fresh;	 /* of chunks that are new */
	uint64_t stored; /* of their frames */
	uint64_t chunks;
	uint64_t bytes[STAGE_COUNT];
	int64_t ns[STAGE_COUNT];
};

/* The hashes of all chunks so far, open addressing; sized for some thousand files' worth. */
#define SEEN_SLOTS (1u << 20)

/* As many as an encoder takes at once. */
#define HELD 4

struct bench {
	struct hash *seen;
	struct filter *filter;
	struct buf frame, encrypted;
	struct encryption *encryption;
	uint8_t *scratch;
	struct buf held[HELD]; /* chunks that were copied and not hashed */
	unsigned held_count;
	struct totals all;
};

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void spent(struct totals *t, enum stage stage, int64_t *from, uint64_t bytes)
{
	int64_t now = cpu_ns();

	t->ns[stage] += now - *from;
	t->bytes[stage] += bytes;
	*from = now;
}

/* Remembers the hash: whether it is new. */
static bool add_seen(struct bench *b, const struct hash *h)
{
	static const struct hash none;
	uint32_t slot;

	memcpy(&slot, h->bytes, sizeof(slot));
	for (slot %= SEEN_SLOTS; !hash_equal(&b->seen[slot], &none); slot = (slot + 1) % SEEN_SLOTS)
		if (hash_equal(&b->seen[slot], h))
			return false;
	b->seen[slot] = *h;
	return true;
}

/* The frame as an encrypted volume stores it, and back. */
static int run_encryption(struct bench *b, struct totals *t)
{
	int64_t clock = cpu_ns();
	bool ended, damaged;
	size_t len = 0;
	int r;

	buf_reset(&b->encrypted);
	r = encrypt_object(b->encryption, "packs/bench", b->frame.data, b->frame.len,
			   &b->encrypted);
	spent(t, ENCRYPT, &clock, b->frame.len);
	if (r == 0)
		r = decrypt_segments(b->encryption, "packs/bench", 0, b->encrypted.data,
				     b->encrypted.len, &len, &ended, &damaged);
	spent(t, DECRYPT, &clock, b->frame.len);
	return r == 0 && (len != b->frame.len || damaged) ? -EBADMSG : r;
}

static int run_hashed(struct bench *b, const struct buf *chunk, const struct hash *h,
		      struct totals *t)
{
	int64_t clock = cpu_ns();
	int r;

	if (!add_seen(b, h))
		return 0;
	buf_reset(&b->frame);
	clock = cpu_ns();
	r = filter_encode(b->filter, chunk->data, chunk->len, &b->frame);
	spent(t, ENCODE, &clock, chunk->len);
	if (r < 0)
		return r;
	t->chunks++;
	t->fresh += chunk->len;
	t->stored += b->frame.len;
	r = run_encryption(b, t);
	if (r < 0)
		return r;
	clock = cpu_ns();
	r = filter_decode(b->filter, b->frame.data, b->frame.len, b->scratch, chunk->len);
	spent(t, DECODE, &clock, chunk->len);
	if (r < 0)
		return r;
	if (memcmp(b->scratch, chunk->data, chunk->len) != 0)
		return -EBADMSG;
	clock = cpu_ns();
	gbs_encode(chunk->data, chunk->len, 4, b->scratch);
	spent(t, GBS, &clock, chunk->len);
	return 0;
}

static int run_held(struct bench *b, struct totals *t)
{
	struct hash_job jobs[HELD];
	struct hash hashes[HELD];
	int64_t clock = cpu_ns();
	uint64_t bytes = 0;
	int r = 0;

	for (unsigned i = 0; i < b->held_count; i++) {
		jobs[i] = (struct hash_job){b->held[i].data, b->held[i].len, &hashes[i]};
		bytes += b->held[i].len;
	}
	hash_of_many(jobs, b->held_count);
	spent(t, HASH, &clock, bytes);
	for (unsigned i = 0; r >= 0 && i < b->held_count; i++)
		r = run_hashed(b, &b->held[i], &hashes[i], t);
	b->held_count = 0;
	return r;
}

static int run_chunk(struct bench *b, const struct segment *s, int64_t *clock, struct totals *t)
{
	struct buf *held = &b->held[b->held_count++];

	buf_reset(held);
	buf_put(held, s->data, s->len);
	spent(t, COPY, clock, s->len);
	if (buf_error(held))
		return buf_error(held);
	return b->held_count == HELD ? run_held(b, t) : 0;
}

static int run_file(struct bench *b, const char *path, struct totals *t)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct cutter_file file = {.fd = fd};
	cleanup_cutter struct cutter *c = NULL;
	struct segment s;
	struct stat st;
	int64_t clock;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	t->raw = file.size = (uint64_t)st.st_size;
	clock = cpu_ns();
	r = cutter_open_file(&file, &c);
	while (r >= 0 && (r = cutter_next(c, &s)) == 1) {
		spent(t, CUT, &clock, s.len);
		if (s.kind == SEGMENT_DATA)
			r = run_chunk(b, &s, &clock, t);
		clock = cpu_ns();
	}
	return r >= 0 && b->held_count ? run_held(b, t) : r;
}

/* Of a processor, for each GB of files. */
static double up_seconds(const struct totals *t)
{
	int64_t ns = 0;

	for (int i = CUT; i <= ENCODE; i++)
		ns += t->ns[i];
	return t->raw ? (double)ns / (double)t->raw : 0;
}

static void print_totals(const char *name, const struct totals *t)
{
	printf("%-28s %9.1f %7" PRIu64 " %8.3f %8.3f", name, (double)t->raw / 1e6, t->chunks,
	       t->raw ? (double)t->fresh / (double)t->raw : 0,
	       t->raw ? (double)t->stored / (double)t->raw : 0);
	for (int i = 0; i < STAGE_COUNT; i++)
		printf(" %7.2f", t->ns[i] ? (double)t->bytes[i] / (double)t->ns[i] : 0.0);
	printf(" %7.2f\n", up_seconds(t));
}

static void add_totals(struct totals *sum, const struct totals *t)
{
	sum->raw += t->raw;
	sum->fresh += t->fresh;
	sum->stored += t->stored;
	sum->chunks += t->chunks;
	for (int i = 0; i < STAGE_COUNT; i++) {
		sum->bytes[i] += t->bytes[i];
		sum->ns[i] += t->ns[i];
	}
}

/* Of the processor's time for an upload, and for a read. */
static void print_added(const struct totals *t)
{
	double up = up_seconds(t) * (double)t->raw, read = (double)(t->ns[DECODE] + t->ns[HASH]);

	if (up > 0 && read > 0)
		printf("encryption adds %.0f %% to \"up\", and %.0f %% to decode and sha256\n",
		       100 * (double)t->ns[ENCRYPT] / up, 100 * (double)t->ns[DECRYPT] / read);
}

static int run_files(struct bench *b, char **paths, size_t count)
{
	printf("%-28s %9s %7s %8s %8s", "file", "MB", "chunks", "unique", "stored");
	for (int i = 0; i < STAGE_COUNT; i++)
		printf(" %7s", stage_names[i]);
	printf("      up  (GB/s on one core; s/GB)\n");
	for (size_t i = 0; i < count; i++) {
		const char *slash = strrchr(paths[i], '/');
		struct totals t = {0};
		int r = run_file(b, paths[i], &t);

		if (r < 0) {
			fprintf(stderr, "bench_pipeline: %s: %s\n", paths[i], strerror(-r));
			return r;
		}
		print_totals(slash ? slash + 1 : paths[i], &t);
		add_totals(&b->all, &t);
	}
	print_totals("all", &b->all);
	print_added(&b->all);
	return 0;
}

static int run(char **paths, size_t count)
{
	static const uint8_t master[CRYPTO_KEY_SIZE] = {1};
	struct bench b = {0};
	int r = filter_new(&b.filter);

	if (r == 0)
		r = encryption_new(master, "0f8fad5b-d9cb-469f-a165-70867728950e", &b.encryption);
	if (r < 0)
		return r;
	b.seen = calloc(SEEN_SLOTS, sizeof(*b.seen));
	b.scratch = malloc(CUTTER_CHUNK_MAX);
	r = b.seen && b.scratch ? run_files(&b, paths, count) : -ENOMEM;
	free(b.seen);
	free(b.scratch);
	buf_free(&b.frame);
	buf_free(&b.encrypted);
	encryption_unref(b.encryption);
	for (unsigned i = 0; i < HELD; i++)
		buf_free(&b.held[i]);
	filter_free(b.filter);
	return r;
}

/* Checkpoints of a small model, in a directory that is removed again. */
static int run_made(void)
{
	char dir[] = "/tmp/epochfs-bench-XXXXXX";
	char command[256];
	char pattern[64];
	glob_t found = {0};
	int r;

	if (!mkdtemp(dir))
		return -errno;
	snprintf(command, sizeof(command), "tests/bench/make_checkpoints.py %s", dir);
	snprintf(pattern, sizeof(pattern), "%s/*", dir);
	if (system(command) != 0 || glob(pattern, 0, NULL, &found) != 0) {
		fprintf(stderr, "bench_pipeline: no PyTorch for tests/bench/make_checkpoints.py; "
				"name some files instead\n");
		r = 0;
	} else {
		r = run(found.gl_pathv, found.gl_pathc);
	}
	globfree(&found);
	io_remove_tree(AT_FDCWD, dir);
	return r;
}

int main(int argc, char **argv)
{
	int r = argc > 1 ? run(argv + 1, (size_t)argc - 1) : run_made();

	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

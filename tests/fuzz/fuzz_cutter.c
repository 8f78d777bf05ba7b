/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the cutter on any file; what it reads of zips and safetensors is only believed. */
#include "lib/store/cutter.h"
#include "tests/fuzz/fuzz.h"

/*
 * The input is a program for a file that may be large: 0xff and two bytes N stand for N KiB of
 * zeros, 0xfe likewise for noise; every other byte for itself. A whole file of a few bytes would
 * never be cut.
 */
#define FILE_MAX ((size_t)4 << 20)

/* So many words of zeros or noise: at once, since most of a run would be this. */
static void put_words(struct buf *out, size_t count, bool zeros, uint32_t *noise)
{
	uint8_t *at;

	if (!count)
		return;
	fuzz_assert(buf_reserve(out, count * sizeof(*noise)) == 0);
	at = out->data + out->len;
	out->len += count * sizeof(*noise);
	if (zeros)
		memset(at, 0, count * sizeof(*noise));
	for (size_t k = 0; k < count && !zeros; k++, at += sizeof(*noise)) {
		memcpy(at, noise, sizeof(*noise));
		*noise = *noise * 1664525 + 1013904223;
	}
}

static void make_file(const uint8_t *p, size_t len, struct buf *out)
{
	uint32_t noise = 1;

	for (size_t i = 0; i < len && out->len < FILE_MAX; i++) {
		if (p[i] < 0xfe || i + 2 >= len) {
			buf_put_u8(out, p[i]);
			continue;
		}
		put_words(out, (p[i + 1] | (size_t)p[i + 2] << 8) % 4096 * 256, p[i] == 0xff,
			  &noise);
		i += 2;
	}
}

static ssize_t read_file(void *arg, void *data, size_t len, uint64_t offset)
{
	const struct buf *file = arg;

	fuzz_assert(offset <= file->len && len <= file->len - offset);
	memcpy(data, file->data + offset, len);
	return (ssize_t)len;
}

static void check_segment(const struct buf *file, const struct segment *s, uint64_t pos)
{
	fuzz_assert(s->offset == pos && s->len > 0 && s->len <= file->len - pos);
	if (s->kind == SEGMENT_ZERO) {
		fuzz_assert(zero_prefix(file->data + pos, s->len) == s->len);
		return;
	}
	fuzz_assert(s->len <= CUTTER_CHUNK_MAX);
	fuzz_assert(memcmp(s->data, file->data + pos, s->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf file = {0};
	cleanup_cutter struct cutter *large = NULL;
	cleanup_cutter struct cutter *small = NULL;
	struct cutter_source source = {.pread = read_file, .arg = &file};
	uint64_t pos = 0;

	make_file(data, len, &file);
	source.size = file.len;
	fuzz_assert(!file.failed && cutter_open_window(&source, 2 * FILE_MAX, &large) == 0);
	fuzz_assert(cutter_open_window(&source, CUTTER_AHEAD, &small) == 0);
	while (pos < file.len) {
		struct segment s, same;

		fuzz_assert(cutter_next(large, &s) == 1 && cutter_next(small, &same) == 1);
		check_segment(&file, &s, pos);
		check_segment(&file, &same, pos);
		fuzz_assert(s.kind == same.kind && s.len == same.len);
		pos += s.len;
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the entries of a zip while it streams by (APPNOTE.TXT 6.3.10, 4.3.7 and 4.3.12). */
#include "lib/store/cutter_impl.h"

#include <string.h>
#include "lib/store/cutter.h"

/*
 * torch.save writes sizes of 0 into the local headers and the true ones into the central directory
 * at the end, so headers are searched for. What looks like one inside a tensor costs no more than a
 * cut. Fields, little-endian, from the signature on:
 *   local:   4 version, 6 flags, 8 method, ... 26 length of name, 28 length of extra, 30 name
 *   central: 4 made by, 6 version, 8 flags, 10 method, ... 28 length of name, ... 46 name
 */
#define LOCAL_LEN    30
#define CENTRAL_LEN  46
#define NAME_MAX_LEN 4096
#define VERSION_MAX  63

static unsigned le16(const uint8_t *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

/* Name length, version and method as any writer of zips puts them. */
static bool plausible(unsigned version, unsigned method, unsigned name)
{
	return version <= VERSION_MAX && (method == 0 || method == 8) && name > 0 &&
	       name <= NAME_MAX_LEN;
}

static bool local_header(const uint8_t *p, size_t len)
{
	return len >= LOCAL_LEN && memcmp(p, "PK\3\4", 4) == 0 &&
	       plausible(le16(p + 4), le16(p + 8), le16(p + 26));
}

static bool central_header(const uint8_t *p, size_t len)
{
	return len >= CENTRAL_LEN && memcmp(p, "PK\1\2", 4) == 0 &&
	       plausible(le16(p + 6), le16(p + 10), le16(p + 28));
}

bool zip_begins(const uint8_t *data, size_t len)
{
	return local_header(data, len);
}

/* The first "PK" at or after `at`, or `end`; data[end] may be read. */
static size_t find_pk(const uint8_t *data, size_t at, size_t end)
{
	enum { STEP = 128 };

	/* Without a branch in the inner loop, which so becomes vector code. */
	for (; at + STEP <= end; at += STEP) {
		const uint8_t *p = data + at;
		uint8_t any = 0;

		for (unsigned i = 0; i < STEP; i++)
			any |= (uint8_t)((p[i] == 'P') & (p[i + 1] == 'K'));
		if (any)
			break;
	}
	while (at < end && !(data[at] == 'P' && data[at + 1] == 'K'))
		at++;
	return at;
}

/* Whether the entry is still too short to tell. */
static bool undecided(const struct zip_scan *z)
{
	return z->has_entry && !z->large;
}

static int decide_large(struct zip_scan *z, struct marks *m)
{
	if (!undecided(z) || z->pos < z->entry || z->pos - z->entry < CUTTER_TENSOR_MIN)
		return 0;
	z->large = true;
	return marks_push(m, z->entry, true);
}

/* A header at z->pos ends the entry before it; `entry` is where its own data begins, 0: none. */
static int take_header(struct zip_scan *z, uint64_t entry, struct marks *m)
{
	int r = decide_large(z, m);

	if (r == 0 && z->has_entry && z->large)
		r = marks_push(m, z->pos, false);
	z->has_entry = entry > 0;
	z->entry = entry;
	z->large = false;
	return r;
}

int zip_scan(struct zip_scan *z, const uint8_t *data, size_t len, uint64_t base, bool end,
	     struct marks *m)
{
	size_t stop = len > CENTRAL_LEN ? len - CENTRAL_LEN : 0;
	size_t at = (size_t)(z->pos - base);
	int r = 0;

	while (r == 0 && at < stop) {
		const uint8_t *p;

		at = find_pk(data, at, stop);
		if (at == stop)
			break;
		p = data + at;
		z->pos = base + at;
		if (local_header(p, len - at))
			r = take_header(z, z->pos + LOCAL_LEN + le16(p + 26) + le16(p + 28), m);
		else if (central_header(p, len - at))
			r = take_header(z, 0, m);
		at++;
	}
	if (r < 0)
		return r;
	/* No header fits into the last bytes: the central directory's end is shorter than one. */
	if (at > (size_t)(z->pos - base))
		z->pos = base + at;
	if (end)
		z->pos = base + len;
	return decide_large(z, m);
}

uint64_t zip_settled(const struct zip_scan *z)
{
	return undecided(z) && z->entry < z->pos ? z->entry : z->pos;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Content-defined cuts between 8-byte words, and runs of zeros. */
#include "lib/store/cutter_impl.h"

#include <endian.h>
#include <string.h>
#include "lib/store/cutter.h"

#define WORD 8

/* The golden ratio's multiplier: it carries every bit of a word to the hash's highest ones. */
#define GEAR_FACTOR UINT64_C(0x9e3779b97f4a7c15)
/* A word moves one bit left with each further one, so that 64 words decide. */
#define GEAR_WINDOW 64
/* One word in so many ends a chunk: with the 64 KiB before the first cut, 256 KiB on average. */
#define GEAR_THRESHOLD (UINT64_MAX / ((192 << 10) / WORD))

static uint64_t load_word(const uint8_t *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return le64toh(w);
}

size_t gear_cut(const uint8_t *data, size_t len, size_t phase)
{
	size_t max = len < CUTTER_CHUNK_MAX ? len : CUTTER_CHUNK_MAX;
	size_t first = phase + CUTTER_CHUNK_MIN;
	size_t at = first - GEAR_WINDOW * WORD;
	uint64_t hash = 0;

	if (len <= first)
		return len;
	for (; at < first; at += WORD)
		hash = (hash << 1) + load_word(data + at) * GEAR_FACTOR;
	for (; at + WORD <= max; at += WORD) {
		if (hash < GEAR_THRESHOLD)
			return at;
		hash = (hash << 1) + load_word(data + at) * GEAR_FACTOR;
	}
	return len <= CUTTER_CHUNK_MAX ? len : at;
}

size_t zero_prefix(const uint8_t *data, size_t len)
{
	enum { STEP = 8 };
	size_t at = 0;

	for (; at + STEP * WORD <= len; at += STEP * WORD) {
		uint64_t w[STEP];
		uint64_t any = 0;

		memcpy(w, data + at, sizeof(w));
		for (unsigned i = 0; i < STEP; i++)
			any |= w[i];
		if (any)
			break;
	}
	while (at < len && data[at] == 0)
		at++;
	return at;
}

/* A run of the least length covers at least one of the places that are this far apart. */
#define PROBE_STEP (CUTTER_ZERO_MIN / 2)

/* The first place between words at or after `at`, and the last at or before it. */
static size_t word_up(size_t at, size_t phase)
{
	return at <= phase ? phase : phase + (at - phase + WORD - 1) / WORD * WORD;
}

static size_t word_down(size_t at, size_t phase)
{
	return at < phase ? 0 : phase + (at - phase) / WORD * WORD;
}

size_t zero_run(const uint8_t *data, size_t max, size_t len, size_t phase)
{
	size_t seen = 0;

	for (size_t probe = 0; probe < len && probe <= max + PROBE_STEP; probe += PROBE_STEP) {
		size_t from = probe;

		if (probe < seen || data[probe] != 0)
			continue;
		seen = probe + zero_prefix(data + probe, len - probe);
		while (from > 0 && data[from - 1] == 0)
			from--;
		if (from > 0)
			from = word_up(from, phase);
		if (from <= max &&
		    (seen < len ? word_down(seen, phase) : len) >= from + CUTTER_ZERO_MIN)
			return from;
	}
	return len;
}

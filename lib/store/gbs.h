/* SPDX-License-Identifier: Apache-2.0 */
/* Gray code and bit planes: a reversible filter that turns floating-point words into runs. */
#ifndef EPOCHFS_STORE_GBS_H
#define EPOCHFS_STORE_GBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Weights of a network have random mantissas, but their exponents are alike: neighbouring values
 * differ in a few bits only. The filter brings those bits together, so that LZ4, which has no
 * entropy coder, finds whole runs.
 *
 * A span of `len` bytes is read as little-endian words of `word` bytes (2, 4 or 8).
 *  1. Each word x becomes its reflected Gray code, its sign bit apart: g = x ^ ((x & ~sign) >> 1).
 *     Neighbouring exponents then differ in one bit.
 *  2. The words are split into byte planes: plane p holds byte p of each word, p = 0 the lowest.
 *  3. Each byte plane is transposed into eight bit planes, bit 7 first. A bit plane holds one bit
 *     of each word: word i is bit i % 8 (0 the lowest) of byte i / 8.
 * That takes in groups of eight words. The tail, the bytes after the last whole group (fewer than
 * 8 * word), stands unchanged behind the planes. The encoded span is as long as the plain one:
 *
 *     plane 0: bits 7..0, gbs_plane_len() / 8 bytes each | plane 1 | ... | plane word-1 | tail
 *
 * The result is the same whatever implementation made it. All functions are thread-safe.
 */

/* The largest word, and so the most byte planes. */
#define GBS_WORD_MAX 8

static inline bool gbs_word_valid(unsigned word)
{
	return word == 2 || word == 4 || word == 8;
}

/* The length of each of the `word` byte planes of a span of len bytes; a multiple of 8. */
static inline size_t gbs_plane_len(size_t len, unsigned word)
{
	return len / word & ~(size_t)7;
}

/* The length of the tail behind the planes: less than 8 * word. */
static inline size_t gbs_tail_len(size_t len, unsigned word)
{
	return len - gbs_plane_len(len, word) * word;
}

/* Encodes len bytes into as many at ret_planes, which must not overlap. `word` must be valid. */
void gbs_encode(const void *plain, size_t len, unsigned word, void *ret_planes);
/* Undoes gbs_encode; any bytes decode to something. ret_plain must not overlap. */
void gbs_decode(const void *planes, size_t len, unsigned word, void *ret_plain);

/* The implementations, for tests and benchmarks; gbs_encode takes the last available one. */
enum gbs_impl { GBS_PORTABLE, GBS_AVX2, GBS_AVX512, GBS_IMPL_COUNT };

/* Whether it was compiled in and this processor runs it. */
bool gbs_available(enum gbs_impl impl);
const char *gbs_impl_name(enum gbs_impl impl);
/* As gbs_encode and gbs_decode, by this implementation, which must be available. */
void gbs_encode_with(enum gbs_impl impl, const void *plain, size_t len, unsigned word,
		     void *ret_planes);
void gbs_decode_with(enum gbs_impl impl, const void *planes, size_t len, unsigned word,
		     void *ret_plain);

/* ---- for gbs*.c alone ---- */

/* Words in a group: one byte of each bit plane. */
#define GBS_GROUP 8

/* The row of bit `bit` of byte plane `plane`, in an encoded span of `groups` groups. */
static inline size_t gbs_row(unsigned plane, unsigned bit, size_t groups)
{
	return ((size_t)plane * 8 + (7 - bit)) * groups;
}

/*
 * A vector implementation takes the largest whole number of its blocks from the start of the span
 * and says how many groups that were; gbs.c does the rest.
 */
#if defined(__x86_64__)
#define GBS_HAVE_AVX2 1
size_t gbs_avx2_encode(const uint8_t *plain, size_t groups, unsigned word, uint8_t *ret_planes);
size_t gbs_avx2_decode(const uint8_t *planes, size_t groups, unsigned word, uint8_t *ret_plain);
#define GBS_HAVE_AVX512 1
size_t gbs_avx512_encode(const uint8_t *plain, size_t groups, unsigned word, uint8_t *ret_planes);
size_t gbs_avx512_decode(const uint8_t *planes, size_t groups, unsigned word, uint8_t *ret_plain);
#else
#define GBS_HAVE_AVX2	0
#define GBS_HAVE_AVX512 0
#endif

#endif

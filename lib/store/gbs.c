/* SPDX-License-Identifier: Apache-2.0 */
/* Gray code and bit planes: the portable implementation, and the choice between them at run time.
 */
#include "lib/store/gbs.h"

#include <stdint.h>
#include <string.h>

/* Transposes 8 x 8 bits: bit b of byte i goes to bit i of byte b (Hacker's Delight, 7-3). It is its
 * own inverse. */
static uint64_t transpose_bits(uint64_t x)
{
	uint64_t t;

	t = (x ^ (x >> 7)) & UINT64_C(0x00aa00aa00aa00aa);
	x ^= t ^ (t << 7);
	t = (x ^ (x >> 14)) & UINT64_C(0x0000cccc0000cccc);
	x ^= t ^ (t << 14);
	t = (x ^ (x >> 28)) & UINT64_C(0x00000000f0f0f0f0);
	x ^= t ^ (t << 28);
	return x;
}

/* The rows of one byte plane of one group: byte b holds bit b of eight words. So the Gray code, an
 * exclusive or of each bit with the next higher one, is one of each byte with the next. */
#define ROW_TOP	   UINT64_C(0xff00000000000000) /* the sign's row in the highest plane */
#define ROWS_BELOW UINT64_C(0x0000ffffffffffff) /* those whose next higher row is no sign */

static void encode_group(const uint8_t *plain, size_t groups, unsigned word, uint8_t *ret_planes)
{
	uint64_t above = 0;

	for (unsigned p = word; p-- > 0;) {
		uint64_t rows = 0;
		uint64_t next;

		for (unsigned i = 0; i < GBS_GROUP; i++)
			rows |= (uint64_t)plain[i * word + p] << (8 * i);
		rows = transpose_bits(rows);
		if (p == word - 1)
			next = rows >> 8 & ROWS_BELOW;
		else
			next = rows >> 8 | above << 56;
		for (unsigned b = 0; b < 8; b++)
			ret_planes[gbs_row(p, b, groups)] = (uint8_t)((rows ^ next) >> (8 * b));
		above = rows;
	}
}

static void decode_group(const uint8_t *planes, size_t groups, unsigned word, uint8_t *ret_plain)
{
	uint64_t above = 0;

	for (unsigned p = word; p-- > 0;) {
		uint64_t rows = 0;
		uint64_t sign = 0;

		for (unsigned b = 0; b < 8; b++)
			rows |= (uint64_t)planes[gbs_row(p, b, groups)] << (8 * b);
		if (p == word - 1) {
			sign = rows & ROW_TOP;
			rows &= ~ROW_TOP;
		} else {
			rows ^= above << 56;
		}
		/* The inverse of the Gray code: each row takes all higher ones in. */
		rows ^= rows >> 8;
		rows ^= rows >> 16;
		rows ^= rows >> 32;
		above = rows;
		rows = transpose_bits(rows | sign);
		for (unsigned i = 0; i < GBS_GROUP; i++)
			ret_plain[i * word + p] = (uint8_t)(rows >> (8 * i));
	}
}

static const char *const impl_names[GBS_IMPL_COUNT] = {
	[GBS_PORTABLE] = "portable",
	[GBS_AVX2] = "avx2",
	[GBS_AVX512] = "avx512",
};

const char *gbs_impl_name(enum gbs_impl impl)
{
	return impl_names[impl];
}

bool gbs_available(enum gbs_impl impl)
{
#if GBS_HAVE_AVX2
	if (impl == GBS_AVX2)
		return __builtin_cpu_supports("avx2");
#endif
#if GBS_HAVE_AVX512
	if (impl == GBS_AVX512)
		return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi") &&
		       __builtin_cpu_supports("gfni");
#endif
	return impl == GBS_PORTABLE;
}

void gbs_encode_with(enum gbs_impl impl, const void *plain, size_t len, unsigned word,
		     void *ret_planes)
{
	const uint8_t *from = plain;
	uint8_t *to = ret_planes;
	size_t groups = gbs_plane_len(len, word) / GBS_GROUP;
	size_t tail = gbs_tail_len(len, word);
	size_t g = 0;

#if GBS_HAVE_AVX2
	if (impl == GBS_AVX2)
		g = gbs_avx2_encode(from, groups, word, to);
#endif
#if GBS_HAVE_AVX512
	if (impl == GBS_AVX512)
		g = gbs_avx512_encode(from, groups, word, to);
#endif
	for (; g < groups; g++)
		encode_group(from + g * GBS_GROUP * word, groups, word, to + g);
	if (tail)
		memcpy(to + len - tail, from + len - tail, tail);
}

void gbs_decode_with(enum gbs_impl impl, const void *planes, size_t len, unsigned word,
		     void *ret_plain)
{
	const uint8_t *from = planes;
	uint8_t *to = ret_plain;
	size_t groups = gbs_plane_len(len, word) / GBS_GROUP;
	size_t tail = gbs_tail_len(len, word);
	size_t g = 0;

#if GBS_HAVE_AVX2
	if (impl == GBS_AVX2)
		g = gbs_avx2_decode(from, groups, word, to);
#endif
#if GBS_HAVE_AVX512
	if (impl == GBS_AVX512)
		g = gbs_avx512_decode(from, groups, word, to);
#endif
	for (; g < groups; g++)
		decode_group(from + g, groups, word, to + g * GBS_GROUP * word);
	if (tail)
		memcpy(to + len - tail, from + len - tail, tail);
}

static enum gbs_impl best(void)
{
	enum gbs_impl impl = GBS_IMPL_COUNT - 1;

	while (!gbs_available(impl))
		impl--;
	return impl;
}

void gbs_encode(const void *plain, size_t len, unsigned word, void *ret_planes)
{
	gbs_encode_with(best(), plain, len, word, ret_planes);
}

void gbs_decode(const void *planes, size_t len, unsigned word, void *ret_plain)
{
	gbs_decode_with(best(), planes, len, word, ret_plain);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Gray code and bit planes with AVX2: 256 words at a time. */
#include "lib/store/gbs.h"

#if GBS_HAVE_AVX2

#include <immintrin.h>
#include <stdbool.h>

/* At -O2 gcc leaves the arrays of vectors below in memory; at -O3 it unrolls their loops. */
#ifndef __clang__
#pragma GCC optimize("O3")
#endif

#define AVX2	 __attribute__((target("avx2")))
#define AVX2_INL static inline __attribute__((target("avx2"), always_inline))

#define VEC	     32	       /* bytes of a vector */
#define BLOCK_GROUPS VEC       /* a block fills one vector of each bit plane */
#define BLOCK_WORDS  (VEC * 8) /* and eight vectors of each byte plane */
#define WORD_MAX     8

/*
 * The low half of every vector here is from the first 128 words of the block and the high half from
 * the last 128, so that the instructions, which work within halves, leave the bytes in their order.
 */
AVX2_INL __m256i load_halves(const uint8_t *p, size_t apart)
{
	__m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));

	return _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)(p + apart)), 1);
}

AVX2_INL void store_halves(uint8_t *p, size_t apart, __m256i v)
{
	_mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(v));
	_mm_storeu_si128((__m128i *)(p + apart), _mm256_extracti128_si256(v, 1));
}

AVX2_INL __m256i both_halves(char a, char b, char c, char d, char e, char f, char g, char h, char i,
			     char j, char k, char l, char m, char n, char o, char p)
{
	return _mm256_broadcastsi128_si256(
		_mm_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p));
}

/*
 * split_N turns N vectors, which hold 2 x 16 words of N bytes, into one vector for each byte plane,
 * in place; merge_N undoes it. With N = 8 they are also half of a bit transposition: groups of
 * eight rows to eight rows of groups.
 */
AVX2_INL void split_2(__m256i *v)
{
	const __m256i order = both_halves(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
	__m256i a = _mm256_shuffle_epi8(v[0], order);
	__m256i b = _mm256_shuffle_epi8(v[1], order);

	v[0] = _mm256_unpacklo_epi64(a, b);
	v[1] = _mm256_unpackhi_epi64(a, b);
}

AVX2_INL void split_4(__m256i *v)
{
	const __m256i order = both_halves(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	__m256i lo[2];
	__m256i hi[2];

	for (unsigned k = 0; k < 4; k++)
		v[k] = _mm256_shuffle_epi8(v[k], order);
	for (unsigned k = 0; k < 2; k++) {
		lo[k] = _mm256_unpacklo_epi32(v[2 * k], v[2 * k + 1]);
		hi[k] = _mm256_unpackhi_epi32(v[2 * k], v[2 * k + 1]);
	}
	v[0] = _mm256_unpacklo_epi64(lo[0], lo[1]);
	v[1] = _mm256_unpackhi_epi64(lo[0], lo[1]);
	v[2] = _mm256_unpacklo_epi64(hi[0], hi[1]);
	v[3] = _mm256_unpackhi_epi64(hi[0], hi[1]);
}

AVX2_INL void split_8(__m256i *v)
{
	const __m256i order = both_halves(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
	__m256i w[8];

	for (unsigned k = 0; k < 8; k++)
		v[k] = _mm256_shuffle_epi8(v[k], order);
	for (unsigned k = 0; k < 4; k++) {
		w[k] = _mm256_unpacklo_epi16(v[2 * k], v[2 * k + 1]);
		w[k + 4] = _mm256_unpackhi_epi16(v[2 * k], v[2 * k + 1]);
	}
	for (unsigned k = 0; k < 8; k += 4) {
		__m256i lo0 = _mm256_unpacklo_epi32(w[k], w[k + 1]);
		__m256i lo1 = _mm256_unpacklo_epi32(w[k + 2], w[k + 3]);
		__m256i hi0 = _mm256_unpackhi_epi32(w[k], w[k + 1]);
		__m256i hi1 = _mm256_unpackhi_epi32(w[k + 2], w[k + 3]);

		v[k] = _mm256_unpacklo_epi64(lo0, lo1);
		v[k + 1] = _mm256_unpackhi_epi64(lo0, lo1);
		v[k + 2] = _mm256_unpacklo_epi64(hi0, hi1);
		v[k + 3] = _mm256_unpackhi_epi64(hi0, hi1);
	}
}

AVX2_INL void merge_2(__m256i *v)
{
	__m256i lo = _mm256_unpacklo_epi8(v[0], v[1]);

	v[1] = _mm256_unpackhi_epi8(v[0], v[1]);
	v[0] = lo;
}

AVX2_INL void merge_4(__m256i *v)
{
	__m256i lo01 = _mm256_unpacklo_epi8(v[0], v[1]);
	__m256i hi01 = _mm256_unpackhi_epi8(v[0], v[1]);
	__m256i lo23 = _mm256_unpacklo_epi8(v[2], v[3]);
	__m256i hi23 = _mm256_unpackhi_epi8(v[2], v[3]);

	v[0] = _mm256_unpacklo_epi16(lo01, lo23);
	v[1] = _mm256_unpackhi_epi16(lo01, lo23);
	v[2] = _mm256_unpacklo_epi16(hi01, hi23);
	v[3] = _mm256_unpackhi_epi16(hi01, hi23);
}

AVX2_INL void merge_8(__m256i *v)
{
	__m256i w[8];

	for (unsigned k = 0; k < 4; k++) {
		w[k] = _mm256_unpacklo_epi8(v[2 * k], v[2 * k + 1]);
		w[k + 4] = _mm256_unpackhi_epi8(v[2 * k], v[2 * k + 1]);
	}
	for (unsigned k = 0; k < 8; k += 4) {
		__m256i lo0 = _mm256_unpacklo_epi16(w[k], w[k + 1]);
		__m256i lo1 = _mm256_unpacklo_epi16(w[k + 2], w[k + 3]);
		__m256i hi0 = _mm256_unpackhi_epi16(w[k], w[k + 1]);
		__m256i hi1 = _mm256_unpackhi_epi16(w[k + 2], w[k + 3]);

		v[k] = _mm256_unpacklo_epi32(lo0, lo1);
		v[k + 1] = _mm256_unpackhi_epi32(lo0, lo1);
		v[k + 2] = _mm256_unpacklo_epi32(hi0, hi1);
		v[k + 3] = _mm256_unpackhi_epi32(hi0, hi1);
	}
}

/* Four transpositions of 8 x 8 bits, as in gbs.c. */
AVX2_INL __m256i transpose_bits(__m256i x)
{
	__m256i t;

	t = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, 7)),
			     _mm256_set1_epi64x(0x00aa00aa00aa00aa));
	x = _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64(t, 7)));
	t = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, 14)),
			     _mm256_set1_epi64x(0x0000cccc0000cccc));
	x = _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64(t, 14)));
	t = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, 28)),
			     _mm256_set1_epi64x(0x00000000f0f0f0f0));
	return _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64(t, 28)));
}

/* 256 bytes of one byte plane to their eight rows of bits (v[b] for bit b), and back. */
AVX2_INL void bytes_to_rows(__m256i *v)
{
	for (unsigned k = 0; k < 8; k++)
		v[k] = transpose_bits(v[k]);
	split_8(v);
}

AVX2_INL void rows_to_bytes(__m256i *v)
{
	merge_8(v);
	for (unsigned k = 0; k < 8; k++)
		v[k] = transpose_bits(v[k]);
}

AVX2_INL void encode_block(const uint8_t *plain, size_t groups, unsigned word, uint8_t *ret_planes)
{
	__m256i bytes[WORD_MAX][8];
	__m256i above = _mm256_setzero_si256();
	__m256i v[8];

	for (unsigned k = 0; k < 8; k++) {
		const uint8_t *from = plain + (size_t)16 * word * k;

		for (unsigned j = 0; j < word; j++)
			v[j] = load_halves(from + 16 * j, (size_t)BLOCK_WORDS / 2 * word);
		if (word == 2)
			split_2(v);
		else if (word == 4)
			split_4(v);
		else
			split_8(v);
		for (unsigned p = 0; p < word; p++)
			bytes[p][k] = v[p];
	}
	for (unsigned p = word; p-- > 0;) {
		bytes_to_rows(bytes[p]);
		for (unsigned b = 8; b-- > 0;) {
			uint8_t *row = ret_planes + gbs_row(p, b, groups);
			bool sign = p == word - 1 && b == 7;

			_mm256_storeu_si256((__m256i *)row, _mm256_xor_si256(bytes[p][b], above));
			above = sign ? _mm256_setzero_si256() : bytes[p][b];
		}
	}
}

AVX2_INL void decode_block(const uint8_t *planes, size_t groups, unsigned word, uint8_t *ret_plain)
{
	__m256i bytes[WORD_MAX][8];
	__m256i above = _mm256_setzero_si256();
	__m256i v[8];

	for (unsigned p = word; p-- > 0;) {
		for (unsigned b = 8; b-- > 0;) {
			const uint8_t *row = planes + gbs_row(p, b, groups);
			bool sign = p == word - 1 && b == 7;

			v[b] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)row), above);
			above = sign ? _mm256_setzero_si256() : v[b];
		}
		rows_to_bytes(v);
		for (unsigned k = 0; k < 8; k++)
			bytes[p][k] = v[k];
	}
	for (unsigned k = 0; k < 8; k++) {
		uint8_t *to = ret_plain + (size_t)16 * word * k;

		for (unsigned p = 0; p < word; p++)
			v[p] = bytes[p][k];
		if (word == 2)
			merge_2(v);
		else if (word == 4)
			merge_4(v);
		else
			merge_8(v);
		for (unsigned j = 0; j < word; j++)
			store_halves(to + 16 * j, (size_t)BLOCK_WORDS / 2 * word, v[j]);
	}
}

/* One loop for each word size, so that the compiler unrolls it. */
AVX2_INL void encode_blocks(const uint8_t *plain, size_t groups, unsigned word, uint8_t *ret_planes)
{
	for (size_t g = 0; g + BLOCK_GROUPS <= groups; g += BLOCK_GROUPS)
		encode_block(plain + g * GBS_GROUP * word, groups, word, ret_planes + g);
}

AVX2_INL void decode_blocks(const uint8_t *planes, size_t groups, unsigned word, uint8_t *ret_plain)
{
	for (size_t g = 0; g + BLOCK_GROUPS <= groups; g += BLOCK_GROUPS)
		decode_block(planes + g, groups, word, ret_plain + g * GBS_GROUP * word);
}

AVX2 size_t gbs_avx2_encode(const uint8_t *plain, size_t groups, unsigned word, uint8_t *ret_planes)
{
	if (word == 2)
		encode_blocks(plain, groups, 2, ret_planes);
	else if (word == 4)
		encode_blocks(plain, groups, 4, ret_planes);
	else
		encode_blocks(plain, groups, 8, ret_planes);
	return groups - groups % BLOCK_GROUPS;
}

AVX2 size_t gbs_avx2_decode(const uint8_t *planes, size_t groups, unsigned word, uint8_t *ret_plain)
{
	if (word == 2)
		decode_blocks(planes, groups, 2, ret_plain);
	else if (word == 4)
		decode_blocks(planes, groups, 4, ret_plain);
	else
		decode_blocks(planes, groups, 8, ret_plain);
	return groups - groups % BLOCK_GROUPS;
}

#endif

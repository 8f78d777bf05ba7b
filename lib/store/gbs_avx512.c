/* SPDX-License-Identifier: Apache-2.0 */
/* Gray code and bit planes with AVX-512: 512 words at a time. */
#include "lib/store/gbs.h"

#if GBS_HAVE_AVX512

#include <immintrin.h>
#include <stdbool.h>

/* At -O2 gcc leaves the arrays of vectors below in memory; at -O3 it unrolls their loops. */
#ifndef __clang__
#pragma GCC optimize("O3")
#endif

/* AddressSanitizer's stack for uses after return is not aligned for vectors of 64 bytes. */
#define AVX512	   __attribute__((target("avx512f,avx512bw,avx512vbmi,gfni"), no_sanitize("address")))
#define AVX512_INL static inline __attribute__((always_inline)) AVX512

#define VEC	     64	       /* bytes of a vector */
#define BLOCK_GROUPS VEC       /* a block fills one vector of each bit plane */
#define BLOCK_WORDS  (VEC * 8) /* and eight vectors of each byte plane */
#define WORD_MAX     8

/*
 * Two steps do nearly all of it. A permutation of bytes (VBMI) puts those of a vector into any order. And the
 * affine transformation over GF(2) (GFNI) multiplies an 8 x 8 bit matrix, a quadword, with vectors of eight bits:
 * with the eight unit vectors, it gives the matrix transposed. It counts rows from the last byte, so quadwords go
 * into it with their bytes turned round, which the permutation before it does for nothing.
 */
struct order {
	uint8_t from[VEC];
};

#define UNIT_VECTORS 0x8040201008040201

/* Byte i of the result is byte from[i]. */
AVX512_INL __m512i reorder(__m512i v, const struct order *order)
{
	return _mm512_permutexvar_epi8(_mm512_loadu_si512(order->from), v);
}

AVX512_INL __m512i transpose_bits(__m512i turned)
{
	return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((long long)UNIT_VECTORS), turned, 0);
}

/* A vector of words to its byte planes, one behind the other, each eight bytes of them turned round. */
AVX512_INL void split_order(unsigned word, struct order *ret_order)
{
	for (unsigned i = 0; i < VEC; i++) {
		unsigned plane = i / (VEC / word), at = i % (VEC / word);

		ret_order->from[i] = (uint8_t)((at ^ 7) * word + plane);
	}
}

/* Byte planes, one behind the other, to words. */
AVX512_INL void merge_order(unsigned word, struct order *ret_order)
{
	for (unsigned i = 0; i < VEC; i++)
		ret_order->from[i] = (uint8_t)(i % word * (VEC / word) + i / word);
}

/* Byte b of quadword g to byte g of quadword b, or to byte 7 - g of it. */
AVX512_INL void group_order(bool turned, struct order *ret_order)
{
	for (unsigned b = 0; b < 8; b++)
		for (unsigned g = 0; g < 8; g++)
			ret_order->from[8 * b + (turned ? 7 - g : g)] = (uint8_t)(8 * g + b);
}

/* Lane i of vector j to lane j of vector i, of four vectors that stand `apart`. */
AVX512_INL void transpose_lanes(__m512i *v, unsigned apart)
{
	__m512i a = _mm512_shuffle_i64x2(v[0], v[apart], 0x88);
	__m512i b = _mm512_shuffle_i64x2(v[2 * apart], v[3 * apart], 0x88);
	__m512i c = _mm512_shuffle_i64x2(v[0], v[apart], 0xdd);
	__m512i d = _mm512_shuffle_i64x2(v[2 * apart], v[3 * apart], 0xdd);

	v[0] = _mm512_shuffle_i64x2(a, b, 0x88);
	v[apart] = _mm512_shuffle_i64x2(c, d, 0x88);
	v[2 * apart] = _mm512_shuffle_i64x2(a, b, 0xdd);
	v[3 * apart] = _mm512_shuffle_i64x2(c, d, 0xdd);
}

/* Quadword i of vector j to quadword j of vector i. */
AVX512_INL void transpose_quads(__m512i *v)
{
	for (unsigned k = 0; k < 8; k += 2) {
		__m512i lo = _mm512_unpacklo_epi64(v[k], v[k + 1]);

		v[k + 1] = _mm512_unpackhi_epi64(v[k], v[k + 1]);
		v[k] = lo;
	}
	transpose_lanes(v, 2);
	transpose_lanes(v + 1, 2);
}

/* `word` vectors, each with a piece of every byte plane, to one of each plane; its own inverse. */
AVX512_INL void exchange(__m512i *v, unsigned word)
{
	__m512i lo;

	switch (word) {
	case 2:
		lo = _mm512_shuffle_i64x2(v[0], v[1], 0x44);
		v[1] = _mm512_shuffle_i64x2(v[0], v[1], 0xee);
		v[0] = lo;
		break;
	case 4:
		transpose_lanes(v, 1);
		break;
	default:
		transpose_quads(v);
		break;
	}
}

AVX512_INL void encode_block(const uint8_t *plain, size_t groups, unsigned word,
			     const struct order *split, const struct order *group,
			     uint8_t *ret_planes)
{
	__m512i bytes[WORD_MAX][8];
	__m512i above = _mm512_setzero_si512();
	__m512i v[8];

	for (unsigned k = 0; k < 8; k++) {
		for (unsigned j = 0; j < word; j++)
			v[j] = reorder(_mm512_loadu_si512(plain + (size_t)VEC * (word * k + j)),
				       split);
		exchange(v, word);
		for (unsigned p = 0; p < word; p++)
			bytes[p][k] = v[p];
	}
	for (unsigned p = word; p-- > 0;) {
		for (unsigned k = 0; k < 8; k++)
			v[k] = reorder(transpose_bits(bytes[p][k]), group);
		transpose_quads(v);
		for (unsigned b = 8; b-- > 0;) {
			bool sign = p == word - 1 && b == 7;

			_mm512_storeu_si512(ret_planes + gbs_row(p, b, groups),
					    _mm512_xor_si512(v[b], above));
			above = sign ? _mm512_setzero_si512() : v[b];
		}
	}
}

AVX512_INL void decode_block(const uint8_t *planes, size_t groups, unsigned word,
			     const struct order *merge, const struct order *group,
			     uint8_t *ret_plain)
{
	__m512i bytes[WORD_MAX][8];
	__m512i above = _mm512_setzero_si512();
	__m512i v[8];

	for (unsigned p = word; p-- > 0;) {
		for (unsigned b = 8; b-- > 0;) {
			const uint8_t *row = planes + gbs_row(p, b, groups);
			bool sign = p == word - 1 && b == 7;

			v[b] = _mm512_xor_si512(_mm512_loadu_si512(row), above);
			above = sign ? _mm512_setzero_si512() : v[b];
		}
		transpose_quads(v);
		for (unsigned k = 0; k < 8; k++)
			bytes[p][k] = transpose_bits(reorder(v[k], group));
	}
	for (unsigned k = 0; k < 8; k++) {
		for (unsigned p = 0; p < word; p++)
			v[p] = bytes[p][k];
		exchange(v, word);
		for (unsigned j = 0; j < word; j++)
			_mm512_storeu_si512(ret_plain + (size_t)VEC * (word * k + j),
					    reorder(v[j], merge));
	}
}

/* One loop for each word size, so that the compiler unrolls it and the orders are constants. */
AVX512_INL void encode_blocks(const uint8_t *plain, size_t groups, unsigned word,
			      uint8_t *ret_planes)
{
	struct order split, group;

	split_order(word, &split);
	group_order(false, &group);
	for (size_t g = 0; g + BLOCK_GROUPS <= groups; g += BLOCK_GROUPS)
		encode_block(plain + g * GBS_GROUP * word, groups, word, &split, &group,
			     ret_planes + g);
}

AVX512_INL void decode_blocks(const uint8_t *planes, size_t groups, unsigned word,
			      uint8_t *ret_plain)
{
	struct order merge, group;

	merge_order(word, &merge);
	group_order(true, &group);
	for (size_t g = 0; g + BLOCK_GROUPS <= groups; g += BLOCK_GROUPS)
		decode_block(planes + g, groups, word, &merge, &group,
			     ret_plain + g * GBS_GROUP * word);
}

AVX512 size_t gbs_avx512_encode(const uint8_t *plain, size_t groups, unsigned word,
				uint8_t *ret_planes)
{
	if (word == 2)
		encode_blocks(plain, groups, 2, ret_planes);
	else if (word == 4)
		encode_blocks(plain, groups, 4, ret_planes);
	else
		encode_blocks(plain, groups, 8, ret_planes);
	return groups - groups % BLOCK_GROUPS;
}

AVX512 size_t gbs_avx512_decode(const uint8_t *planes, size_t groups, unsigned word,
				uint8_t *ret_plain)
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

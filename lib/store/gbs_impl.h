/* SPDX-License-Identifier: Apache-2.0 */
/* What the implementations of the bit-plane filter offer to gbs.c; private to it. */
#ifndef EPOCHFS_STORE_GBS_IMPL_H
#define EPOCHFS_STORE_GBS_IMPL_H

#include <stddef.h>
#include <stdint.h>

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

/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, of many at once too, CRC-32C, random ids and hex. */
#include "lib/util/hash.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void hash_of(const void *data, size_t len, struct hash *ret_hash)
{
	unsigned int size = 0;

	if (EVP_Digest(data, len, ret_hash->bytes, &size, EVP_sha256(), NULL) != 1 ||
	    size != HASH_SIZE) {
		fputs("epochfs: libcrypto offers no SHA-256\n", stderr);
		abort();
	}
}

bool hash_equal(const struct hash *a, const struct hash *b)
{
	return memcmp(a->bytes, b->bytes, HASH_SIZE) == 0;
}

int hash_compare(const struct hash *a, const struct hash *b)
{
	return memcmp(a->bytes, b->bytes, HASH_SIZE);
}

void hex_encode(const void *data, size_t len, char *ret_hex)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++) {
		ret_hex[2 * i] = digits[p[i] >> 4];
		ret_hex[2 * i + 1] = digits[p[i] & 15];
	}
	ret_hex[2 * len] = '\0';
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int hex_decode(const char *hex, size_t len, void *ret_data)
{
	uint8_t *out = ret_data;

	for (size_t i = 0; i < 2 * len; i++)
		if (hex_digit(hex[i]) < 0)
			return -EINVAL;
	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
	return 0;
}

void hash_to_hex(const struct hash *h, char ret_hex[HASH_HEX])
{
	hex_encode(h->bytes, HASH_SIZE, ret_hex);
}

int hash_from_hex(const char *hex, struct hash *ret_hash)
{
	if (strlen(hex) != 2 * (size_t)HASH_SIZE)
		return -EINVAL;
	return hex_decode(hex, HASH_SIZE, ret_hash->bytes);
}

#define CRC32C_POLYNOMIAL 0x82f63b78u

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
	}
	return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p,
							       size_t len)
{
	uint64_t wide = crc, word;

	for (; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	for (; len; p++, len--)
		crc = __builtin_ia32_crc32qi(crc, *p);
	return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	crc = ~crc;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return ~crc32c_sse42(crc, data, len);
#endif
	return ~crc32c_portable(crc, data, len);
}

int random_bytes(void *ret_data, size_t len)
{
	uint8_t *p = ret_data;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int uuid_make(char ret_uuid[37])
{
	uint8_t b[16];
	char hex[33];
	int error = random_bytes(b, sizeof(b));

	if (error)
		return error;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	hex_encode(b, sizeof(b), hex);
	snprintf(ret_uuid, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
		 hex + 20);
	return 0;
}

/* ---- Many SHA-256, two at a time interleaved, by the processor's SHA instructions. ---- */

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

/*
 * A round of SHA-256 (FIPS 180-4, 6.2.2) needs the one before, so a single stream leaves the unit that
 * does them idle for most of its latency. Two streams that know nothing of each other fill the gaps.
 *
 * The instructions keep the eight working variables in two vectors, a b e f and c d g h, from the
 * highest word down, and do two rounds with the two lowest words of a third, which are W + K.
 */
#define SHA	__attribute__((target("sha,sse4.1,ssse3")))
#define SHA_INL static inline __attribute__((target("sha,sse4.1,ssse3"), always_inline))

#define BLOCK	    64 /* bytes */
#define STEPS	    16 /* of four rounds each */
#define LANES	    2
#define LENGTH_SIZE 8 /* the message's length in bits, at the end of its last block */

static const uint32_t round_constants[4 * STEPS] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

struct lane {
	__m128i abef, cdgh;
	const struct hash_job *job;
	const uint8_t *data;
	size_t blocks; /* whole ones that are left */
};

SHA_INL __m128i big_endian(__m128i v)
{
	return _mm_shuffle_epi8(v,
				_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
}

SHA static void lane_begin(struct lane *l, const struct hash_job *job)
{
	l->abef = _mm_set_epi32(0x6a09e667, (int)0xbb67ae85, 0x510e527f, (int)0x9b05688c);
	l->cdgh = _mm_set_epi32(0x3c6ef372, (int)0xa54ff53a, 0x1f83d9ab, 0x5be0cd19);
	l->job = job;
	l->data = job->data;
	l->blocks = job->len / BLOCK;
}

/* The next four words of the schedule, from the sixteen before: w[0] the oldest four. */
SHA_INL __m128i schedule(const __m128i *w)
{
	__m128i sum =
		_mm_add_epi32(_mm_sha256msg1_epu32(w[0], w[1]), _mm_alignr_epi8(w[3], w[2], 4));

	return _mm_sha256msg2_epu32(sum, w[3]);
}

/* So many blocks of the first `lanes` lanes, which have as many left. */
SHA_INL void take_blocks(struct lane *lane, unsigned lanes, size_t blocks)
{
	const __m128i *constants = (const __m128i *)round_constants;
	__m128i abef[LANES], cdgh[LANES], w[LANES][4];

	for (unsigned k = 0; k < lanes; k++) {
		abef[k] = lane[k].abef;
		cdgh[k] = lane[k].cdgh;
	}
	for (size_t n = 0; n < blocks; n++) {
#pragma GCC unroll 16
		for (unsigned step = 0; step < STEPS; step++) {
#pragma GCC unroll 2
			for (unsigned k = 0; k < lanes; k++) {
				const __m128i *from =
					(const __m128i *)(lane[k].data + n * BLOCK) + step % 4;
				__m128i sum;

				if (step < 4) {
					w[k][step] = big_endian(_mm_loadu_si128(from));
				} else {
					__m128i next = schedule(w[k]);

					w[k][0] = w[k][1];
					w[k][1] = w[k][2];
					w[k][2] = w[k][3];
					w[k][3] = next;
				}
				sum = _mm_add_epi32(w[k][step < 4 ? step : 3], constants[step]);
				cdgh[k] = _mm_sha256rnds2_epu32(cdgh[k], abef[k], sum);
				abef[k] = _mm_sha256rnds2_epu32(abef[k], cdgh[k],
								_mm_shuffle_epi32(sum, 0x0e));
			}
		}
#pragma GCC unroll 2
		for (unsigned k = 0; k < lanes; k++) {
			lane[k].abef = abef[k] = _mm_add_epi32(abef[k], lane[k].abef);
			lane[k].cdgh = cdgh[k] = _mm_add_epi32(cdgh[k], lane[k].cdgh);
		}
	}
	for (unsigned k = 0; k < lanes; k++) {
		lane[k].data += blocks * BLOCK;
		lane[k].blocks -= blocks;
	}
}

/* The lane's last blocks, with the padding of FIPS 180-4, 5.1.1. */
SHA static void lane_end(struct lane *l)
{
	uint8_t last[2 * BLOCK] = {0};
	uint64_t bits = __builtin_bswap64((uint64_t)l->job->len * 8);
	uint32_t abef[4], cdgh[4], words[8];
	size_t rest = l->job->len % BLOCK;

	if (rest)
		memcpy(last, l->data, rest);
	last[rest] = 0x80;
	l->data = last;
	l->blocks = rest + 1 + LENGTH_SIZE <= BLOCK ? 1 : 2;
	memcpy(last + l->blocks * BLOCK - LENGTH_SIZE, &bits, sizeof(bits));
	take_blocks(l, 1, l->blocks);
	_mm_storeu_si128((__m128i *)abef, l->abef);
	_mm_storeu_si128((__m128i *)cdgh, l->cdgh);
	for (unsigned i = 0; i < 2; i++) {
		words[i] = abef[3 - i];
		words[i + 2] = cdgh[3 - i];
		words[i + 4] = abef[1 - i];
		words[i + 6] = cdgh[1 - i];
	}
	for (unsigned i = 0; i < 8; i++)
		words[i] = __builtin_bswap32(words[i]);
	memcpy(l->job->ret_hash->bytes, words, sizeof(words));
}

/* A lane that comes to its end takes the next one, so that both are busy whatever the lengths. */
SHA static void many_by_sha(const struct hash_job *jobs, size_t count)
{
	struct lane lanes[LANES];
	unsigned busy = 0;

	while (busy || count) {
		for (; busy < LANES && count; count--)
			lane_begin(&lanes[busy++], jobs++);
		if (busy == LANES)
			take_blocks(lanes, LANES,
				    lanes[0].blocks < lanes[1].blocks ? lanes[0].blocks
								      : lanes[1].blocks);
		else
			take_blocks(lanes, 1, lanes[0].blocks);
		for (unsigned k = busy; k-- > 0;) {
			if (lanes[k].blocks)
				continue;
			lane_end(&lanes[k]);
			lanes[k] = lanes[--busy];
		}
	}
}

static bool have_sha;

/* Once: in a virtual machine each CPUID is a call of the host. */
__attribute__((constructor)) static void look_for_sha(void)
{
	unsigned eax, ebx = 0, ecx, edx;

	__builtin_cpu_init();
	have_sha = __builtin_cpu_supports("sse4.1") &&
		   __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_SHA);
}

#endif

void hash_of_many(const struct hash_job *jobs, size_t count)
{
#if defined(__x86_64__)
	/* Alone, libcrypto's is as fast. */
	if (have_sha && count > 1) {
		many_by_sha(jobs, count);
		return;
	}
#endif
	for (size_t i = 0; i < count; i++)
		hash_of(jobs[i].data, jobs[i].len, jobs[i].ret_hash);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The bit-plane filter: what it is, that it is undone, that every implementation agrees. */
#include "lib/store/gbs.h"

#include "tests/unit/unit.h"

#define GUARD 64

static const unsigned words[] = {2, 4, 8};

/* splitmix64: the same bytes in every run. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint8_t *random_span(size_t len, uint64_t seed)
{
	uint8_t *p = malloc(len + 1);

	ck_assert_ptr_nonnull(p);
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)next_random(&seed);
	return p;
}

/* The definition of gbs.h, bit by bit, with no regard for speed. */
static void encode_by_definition(const uint8_t *plain, size_t len, unsigned word, uint8_t *out)
{
	size_t n = gbs_plane_len(len, word);
	size_t tail = gbs_tail_len(len, word);
	uint64_t sign = UINT64_C(1) << (8 * word - 1);

	memset(out, 0, len);
	for (size_t i = 0; i < n; i++) {
		uint64_t x = 0;
		uint64_t g;

		for (unsigned p = 0; p < word; p++)
			x |= (uint64_t)plain[i * word + p] << (8 * p);
		g = x ^ ((x & ~sign) >> 1);
		for (unsigned bit = 0; bit < 8 * word; bit++) {
			size_t row = (bit / 8) * 8 + (7 - bit % 8);

			if (g >> bit & 1)
				out[row * (n / 8) + i / 8] |= (uint8_t)(1u << (i % 8));
		}
	}
	memcpy(out + len - tail, plain + len - tail, tail);
}

/* Whether nothing was written before or behind the len bytes at span + GUARD. */
static bool guarded(const uint8_t *span, size_t len)
{
	for (size_t i = 0; i < GUARD; i++)
		if (span[i] != 0xa5 || span[GUARD + len + i] != 0xa5)
			return false;
	return true;
}

static void check_len(enum gbs_impl impl, size_t len, unsigned word)
{
	uint8_t *plain = random_span(len, len * 31 + word);
	uint8_t *want = malloc(len + 1);
	uint8_t *coded = malloc(len + 2 * GUARD);
	uint8_t *back = malloc(len + 2 * GUARD);

	memset(coded, 0xa5, len + 2 * GUARD);
	memset(back, 0xa5, len + 2 * GUARD);
	encode_by_definition(plain, len, word, want);
	gbs_encode_with(impl, plain, len, word, coded + GUARD);
	gbs_decode_with(impl, coded + GUARD, len, word, back + GUARD);
	ck_assert_mem_eq(coded + GUARD, want, len);
	ck_assert_mem_eq(back + GUARD, plain, len);
	ck_assert(guarded(coded, len));
	ck_assert(guarded(back, len));
	free(plain);
	free(want);
	free(coded);
	free(back);
}

START_TEST(every_implementation_follows_the_definition)
{
	static const size_t large[] = {4095, 4096, 4097, 16384, 65536, 65571, 1 << 20};

	if (!gbs_available((enum gbs_impl)_i))
		unit_skip("this processor does not run it");
	for (size_t w = 0; w < 3; w++) {
		for (size_t len = 0; len < 700; len++)
			check_len((enum gbs_impl)_i, len, words[w]);
		for (size_t len = 2000; len < 2200; len++)
			check_len((enum gbs_impl)_i, len, words[w]);
		for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
			check_len((enum gbs_impl)_i, large[i], words[w]);
	}
}
END_TEST

START_TEST(the_default_takes_unaligned_spans)
{
	enum { LEN = 40000 };
	uint8_t *plain = random_span(LEN + 8, 7);
	uint8_t *want = malloc(LEN);
	uint8_t *coded = malloc(LEN + 8);
	uint8_t *back = malloc(LEN + 8);

	for (size_t shift = 1; shift < 8; shift++) {
		for (size_t w = 0; w < 3; w++) {
			encode_by_definition(plain + shift, LEN, words[w], want);
			gbs_encode(plain + shift, LEN, words[w], coded + 8 - shift);
			ck_assert_mem_eq(coded + 8 - shift, want, LEN);
			gbs_decode(coded + 8 - shift, LEN, words[w], back + shift);
			ck_assert_mem_eq(back + shift, plain + shift, LEN);
		}
	}
	free(plain);
	free(want);
	free(coded);
	free(back);
}
END_TEST

/* The stored format: a change of it must be seen. */
START_TEST(known_answer)
{
	/* bf16: 1.0, -1.0, 2.0, 0.5, then the same again, and a tail of three bytes. */
	static const uint8_t plain[19] = {0x80, 0x3f, 0x80, 0xbf, 0x00, 0x40, 0x00,
					  0x3f, 0x80, 0x3f, 0x80, 0xbf, 0x00, 0x40,
					  0x00, 0x3f, 1,    2,	  3};
	/* g: 2040 for 0x3f80 (low plane 40), a040, 6000, 2080 */
	static const uint8_t want[19] = {0x88, 0x33, 0, 0, 0, 0, 0, 0, 0x22, 0x44,
					 0xff, 0,    0, 0, 0, 0, 1, 2, 3};
	uint8_t coded[19];

	gbs_encode(plain, sizeof(plain), 2, coded);
	ck_assert_mem_eq(coded, want, sizeof(want));
}
END_TEST

START_TEST(lengths)
{
	for (size_t w = 0; w < 3; w++) {
		ck_assert(gbs_word_valid(words[w]));
		for (size_t len = 0; len < 300; len++) {
			ck_assert_uint_eq(gbs_plane_len(len, words[w]) % 8, 0);
			ck_assert_uint_lt(gbs_tail_len(len, words[w]), 8 * words[w]);
			ck_assert_uint_eq(gbs_plane_len(len, words[w]) * words[w] +
						  gbs_tail_len(len, words[w]),
					  len);
		}
	}
	ck_assert(!gbs_word_valid(0));
	ck_assert(!gbs_word_valid(1));
	ck_assert(!gbs_word_valid(16));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_gbs");
	TCase *t = unit_case(s, "gbs");

	tcase_set_timeout(t, 300);
	tcase_add_loop_test(t, every_implementation_follows_the_definition, 0, GBS_IMPL_COUNT);
	tcase_add_test(t, the_default_takes_unaligned_spans);
	tcase_add_test(t, known_answer);
	tcase_add_test(t, lengths);
	return unit_run(s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Key slots: what is wrapped comes back by its own secret alone, and a crafted slot asks for nothing dear. */
#include "lib/format/key_slot.h"

#include "tests/unit/unit.h"

#define UUID "0f8fad5b-d9cb-469f-a165-70867728950e"
#define ID   "0123456789abcdef"

static const uint8_t master[CRYPTO_KEY_SIZE] = {7, 8, 9};
static const char secret[] = "thirty-two bytes or more of a key file";

static struct key_slot wrapped(enum key_kind kind)
{
	struct key_slot s;

	unit_ok(key_slot_wrap(ID, UUID, kind, secret, strlen(secret), master, &s));
	return s;
}

static int unwrap(const struct key_slot *s, const char *id, const char *with)
{
	uint8_t got[CRYPTO_KEY_SIZE] = {0};
	int error = key_slot_unwrap(s, id, with, strlen(with), got);

	if (!error)
		ck_assert_mem_eq(got, master, sizeof(got));
	else
		ck_assert_uint_eq(got[0], 0);
	return error;
}

static struct key_slot by_text(const struct key_slot *s)
{
	cleanup_buf struct buf text = {0}, again = {0};
	struct key_slot got;

	unit_ok(key_slot_encode(s, &text));
	unit_ok(key_slot_decode(text.data, text.len, &got));
	unit_ok(key_slot_encode(&got, &again));
	unit_same_bytes(text.data, text.len, again.data, again.len);
	return got;
}

START_TEST(each_kind_opens_by_its_secret_alone)
{
	for (int kind = 0; kind < 2; kind++) {
		struct key_slot made = wrapped(kind), s = by_text(&made);

		unit_ok(unwrap(&s, ID, secret));
		unit_error(unwrap(&s, ID, "thirty-two bytes or more of a key filf"), -EBADMSG);
	}
}
END_TEST

START_TEST(nothing_of_it_can_be_changed)
{
	struct key_slot good = wrapped(KEY_FILE), s;

	unit_error(unwrap(&good, "0123456789abcdee", secret), -EBADMSG);
	s = good;
	s.uuid[0] = '1';
	unit_error(unwrap(&s, ID, secret), -EBADMSG);
	s = good;
	s.created_ns++;
	unit_error(unwrap(&s, ID, secret), -EBADMSG);
	s = good;
	s.salt[15] ^= 1;
	unit_error(unwrap(&s, ID, secret), -EBADMSG);
	s = good;
	s.nonce[0] ^= 1;
	unit_error(unwrap(&s, ID, secret), -EBADMSG);
	s = good;
	s.wrapped[47] ^= 1;
	unit_error(unwrap(&s, ID, secret), -EBADMSG);
	s = good;
	s.kind = KEY_PASSPHRASE;
	s.cost = (struct scrypt_cost){16, 1, 1};
	unit_error(unwrap(&s, ID, secret), -EBADMSG);
}
END_TEST

START_TEST(the_master_key_is_not_in_it)
{
	struct key_slot s = wrapped(KEY_FILE), other = wrapped(KEY_FILE);

	ck_assert_ptr_null(memmem(&s, sizeof(s), master, sizeof(master)));
	ck_assert_mem_ne(s.salt, other.salt, sizeof(s.salt));
	ck_assert_mem_ne(s.wrapped, other.wrapped, sizeof(s.wrapped));
}
END_TEST

#define SLOT(kind, cost)                                                                               \
	"{\"format\": 1, \"volume\": \"" UUID "\", \"kind\": \"" kind "\", "                           \
	"\"created\": \"2026-01-01T00:00:00Z\", \"salt\": \"00112233445566778899aabbccddeeff\", " cost \
	"\"nonce\": \"000102030405060708090a0b\", \"wrapped\": "                                       \
	"\"0000000000000000000000000000000000000000000000000000000000000000"                           \
	"00000000000000000000000000000000\"}"
#define COST(n, r, p) "\"scrypt\": {\"n\": " n ", \"r\": " r ", \"p\": " p "}, "

static int decode(const char *text)
{
	struct key_slot s;

	return key_slot_decode(text, strlen(text), &s);
}

START_TEST(a_cost_that_would_take_too_much_is_refused)
{
	unit_ok(decode(SLOT("passphrase", COST("131072", "8", "1"))));
	unit_ok(decode(SLOT("passphrase", COST("262144", "8", "2"))));
	unit_error(decode(SLOT("passphrase", COST("524288", "8", "1"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", COST("131072", "8", "5"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", COST("131073", "8", "1"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", COST("2147483648", "1", "1"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", COST("4294967296", "8", "1"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", COST("2", "4294967295", "1"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", COST("0", "8", "1"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", COST("-16", "8", "1"))), -EBADMSG);
	unit_error(decode(SLOT("passphrase", "")), -EBADMSG);
}
END_TEST

START_TEST(what_is_no_slot_is_refused)
{
	static const uint8_t nothing[64];
	struct key_slot s;

	unit_ok(decode(SLOT("key-file", "")));
	unit_error(decode(SLOT("fingerprint", "")), -EPROTONOSUPPORT);
	unit_error(decode("{\"format\": 2}"), -EPROTONOSUPPORT);
	unit_error(decode("{}"), -EBADMSG);
	unit_error(decode(""), -EBADMSG);
	unit_error(key_slot_decode(nothing, sizeof(nothing), &s), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_key_slot");
	TCase *t = unit_case(s, "key slots");

	tcase_add_test(t, each_kind_opens_by_its_secret_alone);
	tcase_add_test(t, nothing_of_it_can_be_changed);
	tcase_add_test(t, the_master_key_is_not_in_it);
	tcase_add_test(t, a_cost_that_would_take_too_much_is_refused);
	tcase_add_test(t, what_is_no_slot_is_refused);
	return unit_run(s);
}

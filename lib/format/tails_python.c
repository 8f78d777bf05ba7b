/* SPDX-License-Identifier: Apache-2.0 */
/* Is an array of NumPy, or a pickle, cut off? */
#include "lib/format/tails.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

#define TORN 1

/* What is there of the first bytes: how many, or -errno. */
static ssize_t read_begin(const struct tail_source *in, void *data, size_t len)
{
	return in->read(in->arg, data, len, 0);
}

/* ---- .npy ---- */

/*
 * The magic, the version (1.0, 2.0 or 3.0), the length of the header in 2 bytes, or in 4 from version 2 on, and the header: a dictionary as Python
 * writes it, with "descr", "fortran_order" and "shape". The elements follow; another array may follow these.
 */
#define NPY_PREFIX_MAX 12u
/* The header of an array of plain numbers is shorter. */
#define NPY_HEADER_MAX 4096u

static void skip_space(const char **p)
{
	*p += strspn(*p, " \t\r\n");
}

static bool is_next(const char **p, char c)
{
	skip_space(p);
	return **p == c;
}

static bool take(const char **p, char c)
{
	bool is = is_next(p, c);

	*p += is;
	return is;
}

/* A text without escapes; false where something else is there. */
static bool take_text(const char **p, const char **ret_text, size_t *ret_len)
{
	char quote[] = "'\\";

	skip_space(p);
	if (**p != '\'' && **p != '"')
		return false;
	quote[0] = *(*p)++;
	*ret_text = *p;
	*ret_len = strcspn(*p, quote);
	*p += *ret_len;
	return *(*p)++ == quote[0];
}

/* "<f4", "|S10", "<U3" or "<M8[ns]": the bytes of an element. False for what is not of one size, as objects, or of several parts. */
static bool item_size(const char *descr, size_t len, uint64_t *ret_size)
{
	char kind, *after;

	if (len && strchr("<>|=", descr[0])) {
		descr++;
		len--;
	}
	if (len < 2 || len > 32)
		return false;
	kind = descr[0];
	*ret_size = strtoull(descr + 1, &after, 10);
	if (after == descr + 1 || descr[1] == '-' || *ret_size > UINT32_MAX)
		return false;
	if (kind == 'U')
		*ret_size *= 4;
	if (kind == 'M' || kind == 'm')
		return *ret_size == 8;
	return after == descr + len && strchr("biufcSaUV", kind);
}

/* "(2, 3)": the product. False where it is none, or too large to be true. */
static bool take_shape(const char **p, uint64_t *ret_count)
{
	*ret_count = 1;
	if (!take(p, '('))
		return false;
	while (!take(p, ')')) {
		uint64_t n;
		char *after;

		skip_space(p);
		if (**p < '0' || **p > '9')
			return false;
		errno = 0;
		n = strtoull(*p, &after, 10);
		if (errno || __builtin_mul_overflow(*ret_count, n, ret_count))
			return false;
		*p = *after == 'L' ? after + 1 : after;
		if (!take(p, ',') && !is_next(p, ')'))
			return false;
	}
	return true;
}

static bool take_word(const char **p)
{
	skip_space(p);
	for (const char *begin = *p;; (*p)++)
		if (!((**p >= 'A' && **p <= 'Z') || (**p >= 'a' && **p <= 'z')))
			return *p > begin;
}

/* How long the elements are. */
static bool npy_data_len(const char *header, uint64_t *ret_len)
{
	bool has_size = false, has_count = false;
	uint64_t size = 0, count = 0;
	const char *p = header;

	if (!take(&p, '{'))
		return false;
	while (!take(&p, '}')) {
		const char *key, *text;
		size_t key_len, len;

		if (!take_text(&p, &key, &key_len) || !take(&p, ':'))
			return false;
		if (key_len == 5 && !strncmp(key, "descr", 5)) {
			has_size = take_text(&p, &text, &len) && item_size(text, len, &size);
			if (!has_size)
				return false;
		} else if (key_len == 5 && !strncmp(key, "shape", 5)) {
			has_count = take_shape(&p, &count);
			if (!has_count)
				return false;
		} else if (!take_word(&p)) {
			return false;
		}
		take(&p, ',');
	}
	return has_size && has_count && !__builtin_mul_overflow(size, count, ret_len);
}

int npy_check(const struct tail_source *in, uint64_t size)
{
	uint8_t prefix[NPY_PREFIX_MAX] = {0};
	char header[NPY_HEADER_MAX + 1];
	uint64_t at, header_len, data_len;
	unsigned version;
	struct reader r;
	ssize_t got = read_begin(in, prefix, sizeof(prefix));

	if (got < 0)
		return (int)got;
	r = reader_of(prefix, (size_t)got);
	reader_skip(&r, sizeof(NPY_MAGIC) - 1);
	version = reader_u8(&r);
	reader_skip(&r, 1);
	header_len = version == 1 ? reader_u16(&r) : reader_u32(&r);
	if (reader_error(&r))
		return TORN;
	if (version < 1 || version > 3)
		return 0;
	at = version == 1 ? 10 : 12;
	if (header_len > size - at)
		return TORN;
	if (header_len > NPY_HEADER_MAX)
		return 0;
	got = in->read(in->arg, header, (size_t)header_len, at);
	if (got < 0)
		return (int)got;
	header[got] = '\0';
	if (!npy_data_len(header, &data_len))
		return 0;
	return size - at - header_len < data_len ? TORN : 0;
}

/* ---- pickles ---- */

/* PROTO, LONG1 and the number by which torch.load knows what torch.save wrote before it wrote zips: storages follow the pickles. */
static const uint8_t torch_legacy[] = {0x80, 2,	   0x8a, 10,   0x6c, 0xfc, 0x9c,
				       0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

/* By its first bytes; else it may be compressed, as joblib does. Protocols 0 and 1 have no mark: lists, dictionaries and objects. */
static bool is_pickle(const uint8_t *data, size_t len)
{
	static const char *const begins[] = {"(dp", "(lp", "}q", "]q", "ccopy_reg\n", NULL};

	if (len >= sizeof(torch_legacy) && !memcmp(data, torch_legacy, sizeof(torch_legacy)))
		return false;
	if (len >= 2 && data[0] == 0x80)
		return data[1] >= 2 && data[1] <= 5;
	for (const char *const *b = begins; *b; b++)
		if (len >= strlen(*b) && !memcmp(data, *b, strlen(*b)))
			return true;
	return false;
}

int pickle_check(const struct tail_source *in, uint64_t size)
{
	uint8_t begin[16], last = 0;
	ssize_t got = read_begin(in, begin, sizeof(begin));

	if (got < 0 || !is_pickle(begin, (size_t)got))
		return got < 0 ? (int)got : 0;
	got = in->read(in->arg, &last, 1, size - 1);
	if (got < 0)
		return (int)got;
	/* STOP ends each, of any protocol. */
	return last == '.' ? 0 : TORN;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Does a zip that torch.save closed in good order hold all storages that its pickle names? */
#include "lib/format/tails.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "lib/format/zip_entry.h"
#include "lib/util/cleanup.h"

#define TORN 1

#define KEYS_MAX (1u << 20) /* storages with greater keys are not looked for */
#define NO_KEY	 UINT32_MAX

/* ---- keys ---- */

/* torch.save counts storages: their keys are decimal numbers. NO_KEY for all else. */
static uint32_t key_of(const uint8_t *text, uint64_t len)
{
	uint32_t key = 0;

	if (!len || len > 7 || (len > 1 && text[0] == '0'))
		return NO_KEY;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return NO_KEY;
		key = key * 10 + (text[i] - '0');
	}
	return key < KEYS_MAX ? key : NO_KEY;
}

/* What is known of the archive, and where the reading is. */
struct look {
	struct zip_span span;
	uint8_t there[KEYS_MAX / 8]; /* by key: whether the storage is in the directory */
	uint8_t prefix[256];
	size_t prefix_len; /* with the slash */
	bool version, unknown;
	bool pickle;
	struct zip_entry pickle_entry;
};

static bool is_there(const struct look *l, uint32_t key)
{
	return l->there[key / 8] & (1u << key % 8);
}

/* ---- the directory ---- */

/* All entries of torch.save stand in one directory, whose name the first one gives. */
static bool same_prefix(struct look *l, const struct zip_entry *e)
{
	const uint8_t *slash;

	if (!l->prefix_len) {
		slash = memchr(e->name, '/', e->name_len);
		if (!slash || (size_t)(slash - e->name) >= sizeof(l->prefix))
			return false;
		l->prefix_len = (size_t)(slash - e->name) + 1;
		memcpy(l->prefix, e->name, l->prefix_len);
	}
	return e->name_len >= l->prefix_len && memcmp(e->name, l->prefix, l->prefix_len) == 0;
}

/* False: TorchScript, torch.package or another program's, whose storages may stand elsewhere. */
static bool entry_look(struct look *l, const struct zip_entry *e)
{
	const uint8_t *name = e->name + l->prefix_len;
	size_t len = e->name_len - l->prefix_len;
	bool plain = zip_entry_is_plain(e);

	if (text_is(name, len, "constants.pkl") || text_is(name, len, "bytecode.pkl") ||
	    text_begins(name, len, "code/") || text_is(name, len, ".data/extern_modules"))
		return false;
	if (text_is(name, len, "data.pkl")) {
		l->pickle = true;
		l->pickle_entry = *e;
		return plain;
	}
	if (text_begins(name, len, "data/") && key_of(name + 5, len - 5) != NO_KEY) {
		uint32_t key = key_of(name + 5, len - 5);

		l->there[key / 8] |= (uint8_t)(1u << key % 8);
	} else if (text_is(name, len, "version")) {
		l->version = plain;
	} else if (!text_is(name, len, "byteorder") && !text_is(name, len, ".format_version") &&
		   !text_is(name, len, ".storage_alignment") && !text_begins(name, len, ".data/")) {
		l->unknown = true;
	}
	return true;
}

/* True where it is torch.save's, as far as names tell. */
static bool directory_look(struct look *l, const struct zip_directory *d)
{
	for (uint64_t i = 0; i < d->entries; i++) {
		struct zip_entry e;

		if (!zip_entry_read(&l->span, &e) || !same_prefix(l, &e) || !entry_look(l, &e))
			return false;
	}
	return true;
}

/* ---- the pickle ---- */

#define ITEMS	   5 /* of a persistent id */
#define THE_KEY	   2
#define ITEMS_LOST (ITEMS + 1)
#define DIGITS	   10

struct item {
	uint32_t key; /* NO_KEY: no string, or none that is a key */
	bool storage; /* may be the string "storage" */
};

/* Only the objects since the last mark are known, while they are few and plain. */
struct walk {
	struct look *look;
	struct item items[ITEMS];
	unsigned count; /* ITEMS_LOST: not known */
	uint32_t id;	/* the key of a tuple that may be a persistent id, the last object made */
	uint64_t memos; /* made by MEMOIZE */
	/* Python has one string of one digit: a key of it may have been memoized as something else. */
	uint64_t digit_memo[DIGITS];
	uint32_t last_digit; /* the string just made, or NO_KEY */
};

static void push(struct walk *w, uint32_t key, bool storage)
{
	w->last_digit = key < DIGITS ? key : NO_KEY;
	if (w->count < ITEMS)
		w->items[w->count++] = (struct item){key, storage};
	else
		w->count = ITEMS_LOST;
}

static void push_string(struct walk *w, uint64_t len)
{
	uint8_t text[8] = {0};

	zip_span_bytes(&w->look->span, len, text, sizeof(text));
	push(w, key_of(text, len), text_is(text, (size_t)(len < 8 ? len : 8), "storage"));
}

static void push_memo(struct walk *w, uint64_t memo)
{
	uint32_t key = NO_KEY;

	for (uint32_t i = 0; i < DIGITS; i++)
		if (w->digit_memo[i] == memo)
			key = i;
	push(w, key, true);
}

static void memoize(struct walk *w, uint64_t memo)
{
	if (w->last_digit != NO_KEY)
		w->digit_memo[w->last_digit] = memo;
}

static void tuple(struct walk *w)
{
	if (w->count == ITEMS && w->items[0].storage)
		w->id = w->items[THE_KEY].key;
	w->count = ITEMS_LOST;
	w->last_digit = NO_KEY;
}

/* An opcode's argument, and what it does here. */
enum effect {
	UNKNOWN,
	LOSES,	/* the objects since the mark are not known any more */
	PUSHES, /* one object, of which nothing is known */
	STRING, /* pushes the argument */
	MEMO,	/* pushes what was memoized with the argument's number */
};

struct shape {
	uint8_t bytes, length,
		lines; /* so many bytes; the bytes whose length so many bytes tell; so many lines */
	enum effect effect;
};

static const struct shape shapes[256] = {
	/* plain objects */
	['K'] = {.bytes = 1, .effect = PUSHES},
	['M'] = {.bytes = 2, .effect = PUSHES},
	['J'] = {.bytes = 4, .effect = PUSHES},
	['G'] = {.bytes = 8, .effect = PUSHES},
	['I'] = {.lines = 1, .effect = PUSHES},
	['L'] = {.lines = 1, .effect = PUSHES},
	['F'] = {.lines = 1, .effect = PUSHES},
	['c'] = {.lines = 2, .effect = PUSHES},
	[0x8a] = {.length = 1, .effect = PUSHES},
	[0x8b] = {.length = 4, .effect = PUSHES},
	['N'] = {.effect = PUSHES},
	[0x88] = {.effect = PUSHES},
	[0x89] = {.effect = PUSHES},
	['X'] = {.length = 4, .effect = STRING},
	[0x8c] = {.length = 1, .effect = STRING},
	[0x8d] = {.length = 8, .effect = STRING},
	['h'] = {.bytes = 1, .effect = MEMO},
	['j'] = {.bytes = 4, .effect = MEMO},
	/* bytes, and other strings */
	['U'] = {.length = 1, .effect = LOSES},
	['C'] = {.length = 1, .effect = LOSES},
	['T'] = {.length = 4, .effect = LOSES},
	['B'] = {.length = 4, .effect = LOSES},
	[0x8e] = {.length = 8, .effect = LOSES},
	[0x96] = {.length = 8, .effect = LOSES},
	['S'] = {.lines = 1, .effect = LOSES},
	['V'] = {.lines = 1, .effect = LOSES},
	['P'] = {.lines = 1, .effect = LOSES},
	['i'] = {.lines = 2, .effect = LOSES},
	/* registered extensions */
	[0x82] = {.bytes = 1, .effect = LOSES},
	[0x83] = {.bytes = 2, .effect = LOSES},
	[0x84] = {.bytes = 4, .effect = LOSES},
	/* what makes one object of others, or changes one */
	['0'] = {.effect = LOSES},
	['1'] = {.effect = LOSES},
	['2'] = {.effect = LOSES},
	['R'] = {.effect = LOSES},
	['a'] = {.effect = LOSES},
	['b'] = {.effect = LOSES},
	['d'] = {.effect = LOSES},
	['e'] = {.effect = LOSES},
	['l'] = {.effect = LOSES},
	['o'] = {.effect = LOSES},
	['s'] = {.effect = LOSES},
	['u'] = {.effect = LOSES},
	['}'] = {.effect = LOSES},
	[']'] = {.effect = LOSES},
	[')'] = {.effect = LOSES},
	[0x81] = {.effect = LOSES},
	[0x85] = {.effect = LOSES},
	[0x86] = {.effect = LOSES},
	[0x87] = {.effect = LOSES},
	[0x8f] = {.effect = LOSES},
	[0x90] = {.effect = LOSES},
	[0x91] = {.effect = LOSES},
	[0x92] = {.effect = LOSES},
	[0x97] = {.effect = LOSES},
	[0x98] = {.effect = LOSES},
};

/* False: the opcode is not known. */
static bool plain_opcode(struct walk *w, uint8_t opcode)
{
	const struct shape *shape = &shapes[opcode];
	struct zip_span *s = &w->look->span;

	if (shape->effect == STRING) {
		push_string(w, zip_span_uint(s, shape->length));
		return true;
	}
	if (shape->effect == MEMO) {
		push_memo(w, zip_span_uint(s, shape->bytes));
		return true;
	}
	zip_span_skip(s, shape->bytes);
	if (shape->length)
		zip_span_skip(s, zip_span_uint(s, shape->length));
	for (unsigned i = 0; i < shape->lines; i++)
		zip_span_line(s);
	if (shape->effect == PUSHES) {
		push(w, NO_KEY, false);
	} else {
		w->count = ITEMS_LOST;
		w->last_digit = NO_KEY;
	}
	return shape->effect != UNKNOWN;
}

/* Opcodes that leave the objects as they are. False: it is another. */
static bool side_opcode(struct walk *w, uint8_t opcode)
{
	struct zip_span *s = &w->look->span;

	switch (opcode) {
	case 0x80: /* PROTO */
		zip_span_skip(s, 1);
		return true;
	case 0x95: /* FRAME */
		zip_span_skip(s, 8);
		return true;
	case 'p': /* PUT: not what torch's protocols make */
		zip_span_line(s);
		return true;
	case 'q':
		memoize(w, zip_span_uint(s, 1));
		return true;
	case 'r':
		memoize(w, zip_span_uint(s, 4));
		return true;
	case 0x94:
		memoize(w, w->memos++);
		return true;
	default:
		return false;
	}
}

/* False: the opcode is not known. */
static bool object_opcode(struct walk *w, uint8_t opcode)
{
	struct zip_span *s = &w->look->span;

	w->id = NO_KEY;
	switch (opcode) {
	case '(':
		w->count = 0;
		w->last_digit = NO_KEY;
		return true;
	case 'g': /* GET */
		zip_span_line(s);
		push(w, NO_KEY, true);
		return true;
	case 't':
		tuple(w);
		return true;
	case 0x93: /* STACK_GLOBAL: one object of two strings */
		w->count = w->count < 2 || w->count > ITEMS ? ITEMS_LOST : w->count - 2;
		push(w, NO_KEY, false);
		return true;
	default:
		return plain_opcode(w, opcode);
	}
}

/* Goes through the opcodes without doing what they say. TORN where a storage is named that is not
 * there; what is not understood is not blamed. */
static int pickle_look(struct look *l)
{
	struct walk w = {.look = l, .count = ITEMS_LOST, .id = NO_KEY, .last_digit = NO_KEY};

	memset(w.digit_memo, 0xff, sizeof(w.digit_memo));
	while (!l->span.error) {
		uint8_t opcode = zip_span_u8(&l->span);

		if (l->span.error || opcode == '.')
			break;
		if (opcode == 'Q') {
			if (w.id != NO_KEY && !is_there(l, w.id))
				return TORN;
			w.id = NO_KEY;
			w.count = ITEMS_LOST;
		} else if (!side_opcode(&w, opcode) && !object_opcode(&w, opcode)) {
			break;
		}
	}
	return l->span.error == -ENODATA ? 0 : l->span.error;
}

/* ---- both ---- */

/* Places the span at the pickle's bytes: false where they are not inside the archive. */
static bool pickle_open(struct look *l, const struct tail_source *in, const struct zip_directory *d)
{
	uint64_t at;

	if (zip_entry_find(&l->span, in, d, &l->pickle_entry, &at) != 1)
		return false;
	zip_span_open(&l->span, in, at, l->pickle_entry.size);
	return true;
}

int torch_zip_check(const struct tail_source *in, const struct zip_directory *directory,
		    const char **ret_why)
{
	cleanup_free struct look *l = calloc(1, sizeof(*l));
	int result;

	if (!l)
		return -ENOMEM;
	if (directory->base > directory->at)
		return 0;
	zip_span_open(&l->span, in, directory->at, directory->size);
	if (!directory_look(l, directory))
		return l->span.error == -ENODATA ? 0 : l->span.error;
	if (!l->pickle) {
		*ret_why = "PyTorch's archive was closed before its pickle was written";
		return l->version && !l->unknown && directory->zip64 ? TORN : 0;
	}
	if (!pickle_open(l, in, directory))
		return l->span.error == -ENODATA ? 0 : l->span.error;
	result = pickle_look(l);
	*ret_why = "PyTorch's archive lacks storages that its pickle names";
	return result;
}

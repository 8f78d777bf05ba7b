/* SPDX-License-Identifier: Apache-2.0 */
/* Does a zip that torch.save closed in good order hold all storages that its pickle names? */
#include "lib/format/tails.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

#define TORN 1

#define WINDOW_SIZE (256u << 10)
#define READ_MAX    (32u << 20) /* of the directory, and of the pickle */
#define KEYS_MAX    (1u << 20)	/* storages with greater keys are not looked for */
#define NO_KEY	    UINT32_MAX

/* ---- a span of the source, read in pieces ---- */

struct span {
	const struct tail_source *in;
	uint64_t at, end; /* what is still to be read into the window */
	size_t pos, len;  /* in the window */
	uint64_t read;	  /* in all */
	int error;	  /* -ENODATA: past the span's end, or enough was read */
	uint8_t window[WINDOW_SIZE];
};

static void span_open(struct span *s, const struct tail_source *in, uint64_t at, uint64_t size)
{
	s->in = in;
	s->at = at;
	s->end = at + size;
	s->pos = s->len = 0;
	s->read = 0;
	s->error = 0;
}

static bool span_fill(struct span *s)
{
	uint64_t left = s->end - s->at;
	ssize_t got;

	if (s->error)
		return false;
	got = left && s->read < READ_MAX
		      ? s->in->read(s->in->arg, s->window,
				    left < WINDOW_SIZE ? (size_t)left : WINDOW_SIZE, s->at)
		      : 0;
	if (got <= 0) {
		s->error = got < 0 ? (int)got : -ENODATA;
		return false;
	}
	s->at += (uint64_t)got;
	s->read += (uint64_t)got;
	s->pos = 0;
	s->len = (size_t)got;
	return true;
}

static uint8_t span_u8(struct span *s)
{
	if (s->pos == s->len && !span_fill(s))
		return 0;
	return s->window[s->pos++];
}

/* Little-endian, of up to 8 bytes. */
static uint64_t span_uint(struct span *s, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < width; i++)
		v |= (uint64_t)span_u8(s) << (8 * i);
	return s->error ? 0 : v;
}

/* What lies beyond the window is not read. */
static void span_skip(struct span *s, uint64_t len)
{
	size_t inside = s->len - s->pos;

	if (s->error)
		return;
	if (len <= inside) {
		s->pos += (size_t)len;
		return;
	}
	len -= inside;
	s->pos = s->len;
	if (len > s->end - s->at)
		s->error = -ENODATA;
	else
		s->at += len;
}

/* The next len bytes: as many as `data` has room for, the rest is skipped. */
static void span_bytes(struct span *s, uint64_t len, void *data, size_t room)
{
	uint8_t *p = data;
	size_t n = len < room ? (size_t)len : room;

	for (size_t i = 0; i < n; i++)
		p[i] = span_u8(s);
	span_skip(s, len - n);
}

static void span_line(struct span *s)
{
	while (!s->error && span_u8(s) != '\n')
		;
}

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
	struct span span;
	uint8_t there[KEYS_MAX / 8]; /* by key: whether the storage is in the directory */
	uint8_t prefix[256];
	size_t prefix_len; /* with the slash */
	bool version, unknown;
	bool pickle;
	uint64_t pickle_at, pickle_size;
};

static bool is_there(const struct look *l, uint32_t key)
{
	return l->there[key / 8] & (1u << key % 8);
}

/* ---- the directory ---- */

struct entry {
	uint16_t flags, method, name_len;
	uint32_t packed, size, at;
	uint8_t name[300];
};

static bool entry_read(struct span *s, struct entry *e)
{
	uint16_t extra, comment;

	if (span_uint(s, 4) != 0x02014b50)
		return false;
	span_skip(s, 4);
	e->flags = (uint16_t)span_uint(s, 2);
	e->method = (uint16_t)span_uint(s, 2);
	span_skip(s, 8);
	e->packed = (uint32_t)span_uint(s, 4);
	e->size = (uint32_t)span_uint(s, 4);
	e->name_len = (uint16_t)span_uint(s, 2);
	extra = (uint16_t)span_uint(s, 2);
	comment = (uint16_t)span_uint(s, 2);
	span_skip(s, 8);
	e->at = (uint32_t)span_uint(s, 4);
	span_bytes(s, e->name_len, e->name, sizeof(e->name));
	span_skip(s, (uint64_t)extra + comment);
	return !s->error && e->name_len <= sizeof(e->name);
}

/* All entries of torch.save stand in one directory, whose name the first one gives. */
static bool same_prefix(struct look *l, const struct entry *e)
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

static bool text_is(const uint8_t *name, size_t len, const char *text)
{
	return len == strlen(text) && memcmp(name, text, len) == 0;
}

static bool text_begins(const uint8_t *name, size_t len, const char *text)
{
	return len >= strlen(text) && memcmp(name, text, strlen(text)) == 0;
}

/* False: TorchScript, torch.package or another program's, whose storages may stand elsewhere. */
static bool entry_look(struct look *l, const struct entry *e)
{
	const uint8_t *name = e->name + l->prefix_len;
	size_t len = e->name_len - l->prefix_len;
	bool plain = !e->method && !(e->flags & 1) && e->packed == e->size;

	if (text_is(name, len, "constants.pkl") || text_is(name, len, "bytecode.pkl") ||
	    text_begins(name, len, "code/") || text_is(name, len, ".data/extern_modules"))
		return false;
	if (text_is(name, len, "data.pkl")) {
		l->pickle = true;
		l->pickle_at = e->at;
		l->pickle_size = e->size;
		return plain && e->at != UINT32_MAX && e->size != UINT32_MAX;
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
		struct entry e;

		if (!entry_read(&l->span, &e) || !same_prefix(l, &e) || !entry_look(l, &e))
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

	span_bytes(&w->look->span, len, text, sizeof(text));
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
	struct span *s = &w->look->span;

	if (shape->effect == STRING) {
		push_string(w, span_uint(s, shape->length));
		return true;
	}
	if (shape->effect == MEMO) {
		push_memo(w, span_uint(s, shape->bytes));
		return true;
	}
	span_skip(s, shape->bytes);
	if (shape->length)
		span_skip(s, span_uint(s, shape->length));
	for (unsigned i = 0; i < shape->lines; i++)
		span_line(s);
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
	struct span *s = &w->look->span;

	switch (opcode) {
	case 0x80: /* PROTO */
		span_skip(s, 1);
		return true;
	case 0x95: /* FRAME */
		span_skip(s, 8);
		return true;
	case 'p': /* PUT: not what torch's protocols make */
		span_line(s);
		return true;
	case 'q':
		memoize(w, span_uint(s, 1));
		return true;
	case 'r':
		memoize(w, span_uint(s, 4));
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
	struct span *s = &w->look->span;

	w->id = NO_KEY;
	switch (opcode) {
	case '(':
		w->count = 0;
		w->last_digit = NO_KEY;
		return true;
	case 'g': /* GET */
		span_line(s);
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
		uint8_t opcode = span_u8(&l->span);

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

#define LOCAL_HEADER 30u

/* Places the span at the pickle's bytes: false where they are not inside the archive. */
static bool pickle_open(struct look *l, const struct tail_source *in, const struct zip_directory *d)
{
	uint64_t room = d->at - d->base, begin = LOCAL_HEADER;
	struct span *s = &l->span;

	if (l->pickle_at > room || room - l->pickle_at < LOCAL_HEADER)
		return false;
	room -= l->pickle_at;
	span_open(s, in, d->base + l->pickle_at, LOCAL_HEADER);
	if (span_uint(s, 4) != 0x04034b50)
		return false;
	span_skip(s, 22);
	begin += span_uint(s, 2);
	begin += span_uint(s, 2);
	if (s->error || begin > room || l->pickle_size > room - begin)
		return false;
	span_open(s, in, d->base + l->pickle_at + begin, l->pickle_size);
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
	span_open(&l->span, in, directory->at, directory->size);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The model: files, what is open of them, and what each step does. model_names.c has names, epochs
 * and the rollback. */
#include "tests/enumerate/model_internal.h"

#include <errno.h>
#include <string.h>

bool letters_same(const struct letters *a, const struct letters *b)
{
	return a->len == b->len && !memcmp(a->letter, b->letter, a->len);
}

void letters_fill(struct letters *c, char letter, uint8_t len)
{
	c->len = len;
	memset(c->letter, letter, len);
}

static void letters_resize(struct letters *c, uint8_t len)
{
	if (len > c->len)
		memset(c->letter + c->len, '.', len - c->len);
	c->len = len;
}

static void letters_put(struct letters *c, uint8_t at, char letter, uint8_t len)
{
	if (c->len < at + len)
		letters_resize(c, at + len);
	memset(c->letter + at, letter, len);
}

/* ---- files ---- */

uint8_t body_new(struct model *m, uint8_t file, const struct letters *now)
{
	struct model_body *b = &m->body[m->bodies];

	*b = (struct model_body){.file = file};
	if (now)
		b->now = *now;
	return m->bodies++;
}

uint8_t file_new(struct model *m, const struct letters *closed)
{
	uint8_t file = m->files++;
	struct model_file *f = &m->file[file];

	*f = (struct model_file){.has_closed = closed != NULL};
	if (closed) {
		f->closed = *closed;
		f->version = m->versions++;
	}
	f->shown = body_new(m, file, closed);
	return file;
}

static bool has_name(const struct model *m, uint8_t file)
{
	for (unsigned n = 0; n < NAMES; n++)
		if (m->name[n].file == file || m->name[n].covered == file)
			return true;
	return false;
}

void file_lost_name(struct model *m, int8_t file)
{
	if (file < 0 || has_name(m, (uint8_t)file))
		return;
	for (unsigned i = 0; i < m->bodies; i++)
		if (m->body[i].file == file) {
			m->body[i].gone = true;
			m->body[i].pending = false;
		}
}

void name_set(struct model *m, unsigned name, int8_t file, int8_t covered)
{
	struct model_name old = m->name[name];

	m->name[name] = (struct model_name){file, covered};
	file_lost_name(m, old.file);
	file_lost_name(m, old.covered);
}

/* ---- closing ---- */

static void commit_body(struct model *m, uint8_t body)
{
	struct model_body *b = &m->body[body];
	struct model_file *f = &m->file[b->file];

	if (b->pending) {
		m->body[f->shown].gone = true;
		f->shown = body;
	}
	if (b->pending || b->dirty || !f->has_closed) {
		f->closed = b->now;
		f->version = m->versions++;
		f->maybes = 0;
	}
	f->has_closed = true;
	b->pending = b->fragile = b->dirty = false;
	for (unsigned n = 0; n < NAMES; n++)
		if (m->name[n].file == b->file)
			name_set(m, n, m->name[n].file, -1);
}

static void undo_body(struct model *m, uint8_t body)
{
	struct model_body *b = &m->body[body];
	bool replaces = b->pending;

	b->pending = false;
	b->gone = true;
	for (unsigned n = 0; !replaces && n < NAMES; n++)
		if (m->name[n].file == b->file)
			name_set(m, n, m->name[n].covered, -1);
}

static void may_be(struct model_file *f, const struct letters *c)
{
	if (f->maybes < MAYBES)
		f->maybe[f->maybes++] = *c;
}

static void finish_body(struct model *m, uint8_t body)
{
	struct model_body *b = &m->body[body];

	if (b->mapped) {
		if (!b->gone)
			may_be(&m->file[b->file], &b->now);
		return;
	}
	if (!b->gone && m->contract && b->killed && b->fragile && !b->well)
		undo_body(m, body);
	else if (!b->gone)
		commit_body(m, body);
	b->killed = b->well = false;
}

static void release(struct model *m, struct model_handle *h, bool killed)
{
	struct model_body *b = &m->body[h->body];

	h->descriptors = 0;
	if (h->op == OP_OPEN_READ)
		return;
	b->killed = b->killed || killed;
	b->well = b->well ||
		  (!killed && (h->made || h->op == OP_OPEN_TRUNCATE || b->changes != h->found));
	if (!--b->writers)
		finish_body(m, h->body);
}

/* The content is closed with it, or a moment later. */
static void do_unmap(struct model *m)
{
	struct model_body *b = &m->body[m->mapping.body];
	struct model_file before = m->file[b->file];

	m->mapping.there = b->mapped = false;
	if (b->writers || b->gone)
		return;
	finish_body(m, m->mapping.body);
	memcpy(m->file[b->file].maybe, before.maybe, sizeof(before.maybe));
	m->file[b->file].maybes = before.maybes;
	may_be(&m->file[b->file], &before.closed);
}

static void do_kill(struct model *m, uint8_t who)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (m->handle[i].descriptors && m->handle[i].who == who)
			release(m, &m->handle[i], true);
	if (m->mapping.there && m->mapping.who == who)
		do_unmap(m);
	for (unsigned i = 0; i < m->bodies; i++)
		m->body[i].members &= (uint8_t) ~(1u << who);
}

/* ---- opening ---- */

/* The newest replacement of the file, of those that any of these processes sees: -1 for none. */
int pending_of(const struct model *m, uint8_t file, uint8_t members)
{
	for (int i = m->bodies - 1; i >= 0; i--)
		if (m->body[i].file == file && m->body[i].pending &&
		    (!members || m->body[i].members & members))
			return i;
	return -1;
}

static uint8_t replacement_new(struct model *m, uint8_t file)
{
	uint8_t body = body_new(m, file, NULL);

	m->body[body].pending = m->body[body].fragile = true;
	return body;
}

/* Which content an open of an existing file gets. */
static uint8_t open_body(struct model *m, const struct step *s, uint8_t file)
{
	const struct model_file *f = &m->file[file];
	int own = pending_of(m, file, (uint8_t)(1u << s->who));
	int newest = pending_of(m, file, 0);
	uint8_t body = f->shown;

	if (own >= 0)
		body = (uint8_t)own;
	else if (s->op == OP_OPEN_TRUNCATE && m->contract && f->has_closed && f->closed.len)
		body = replacement_new(m, file);
	else if (s->op != OP_OPEN_READ && s->op != OP_OPEN_TRUNCATE && newest >= 0)
		body = (uint8_t)newest;
	if (m->body[body].pending)
		m->body[body].members |= (uint8_t)(1u << s->who);
	if (s->op == OP_OPEN_TRUNCATE && m->body[body].now.len) {
		m->body[body].now.len = 0;
		m->body[body].dirty = true;
	}
	if (s->op == OP_OPEN_TRUNCATE)
		m->body[body].changes++;
	return body;
}

static int do_open(struct model *m, const struct step *s, bool *ret_joins)
{
	struct model_handle *h = m->handle;
	int8_t file = m->name[s->name].file;

	if (file < 0 && s->op == OP_OPEN_READ)
		return ENOENT;
	while (h->descriptors)
		h++;
	*h = (struct model_handle){.descriptors = 1, .who = s->who, .op = s->op};
	if (file >= 0) {
		h->body = open_body(m, s, (uint8_t)file);
	} else {
		file = (int8_t)file_new(m, NULL);
		name_set(m, s->name, file, -1);
		h->body = m->file[file].shown;
		m->body[h->body].fragile = s->op == OP_OPEN_TRUNCATE;
		m->body[h->body].dirty = true;
		h->made = true;
	}
	if (s->op != OP_OPEN_READ)
		m->body[h->body].writers++;
	h->found = m->body[h->body].changes;
	*ret_joins = m->body[h->body].writers > 1 && m->body[h->body].fragile;
	return 0;
}

/* ---- handles ---- */

static void note_change(struct model_body *b)
{
	b->dirty = true;
	b->changes++;
}

static void do_write(struct model_handle *h, struct model_body *b, unsigned number)
{
	if (h->op == OP_OPEN_APPEND)
		h->at = b->now.len;
	letters_put(&b->now, h->at, (char)('A' + number), WRITE_LETTERS);
	h->at += WRITE_LETTERS;
	note_change(b);
}

/* An errno, or 0. */
static int do_copy(const struct model *m, const struct model_handle *h, struct model_body *b)
{
	unsigned links;
	const struct letters *from = model_sees(m, h->who, COPY_NAME, &links);
	char letter[COPY_LETTERS];
	uint8_t len;

	if (!from)
		return ENOENT;
	len = from->len < COPY_LETTERS ? from->len : COPY_LETTERS;
	memcpy(letter, from->letter, len);
	for (uint8_t i = 0; i < len; i++)
		letters_put(&b->now, COPY_AT + i, letter[i], 1);
	if (len)
		note_change(b);
	return 0;
}

static void do_map(struct model *m, const struct model_handle *h)
{
	m->mapping = (struct model_mapping){true, h->who, h->body};
	m->body[h->body].mapped = true;
}

static void do_store(struct model *m, unsigned number)
{
	struct model_body *b = &m->body[m->mapping.body];

	letters_put(&b->now, 0, (char)('0' + number), 1);
	note_change(b);
}

static void do_handle(struct model *m, const struct step *s, unsigned number,
		      struct model_result *ret_result)
{
	struct model_handle *h = &m->handle[s->handle];
	struct model_body *b = &m->body[h->body];

	switch (s->op) {
	case OP_DUP:
		h->descriptors++;
		m->shared = m->shared || h->op != OP_OPEN_READ;
		break;
	case OP_CLOSE:
		if (h->descriptors > 1)
			h->descriptors--;
		else
			release(m, h, false);
		break;
	case OP_READ:
		ret_result->read = b->now;
		break;
	case OP_WRITE:
	case OP_ASYNC:
		do_write(h, b, number);
		break;
	case OP_TRUNCATE:
		letters_resize(&b->now, TRUNCATE_LETTERS);
		note_change(b);
		break;
	case OP_MAP:
		letters_put(&b->now, 0, (char)('0' + number), 1);
		note_change(b);
		break;
	case OP_PREALLOCATE:
		if (b->now.len < ALLOCATE_LETTERS)
			letters_resize(&b->now, ALLOCATE_LETTERS);
		note_change(b);
		break;
	case OP_PUNCH:
		letters_put(&b->now, PUNCH_AT, '.', 1);
		note_change(b);
		break;
	case OP_COPY:
		ret_result->error = do_copy(m, h, b);
		break;
	case OP_MAP_KEEP:
		do_map(m, h);
		break;
	default: /* OP_FSYNC: a new file is safe from then on, a replacement is not */
		if (!b->pending)
			b->fragile = false;
		break;
	}
}

void model_do(struct model *m, const struct step *s, unsigned number,
	      struct model_result *ret_result)
{
	*ret_result = (struct model_result){0};
	if (op_opens(s->op) || s->op == OP_KILL)
		m->used_processes |= (uint8_t)(1u << s->who);
	if (s->op == OP_COPY)
		m->used_names |= 1u << COPY_NAME;
	if (op_opens(s->op) || op_names(s->op))
		m->used_names |= (uint8_t)(1u << s->name);
	m->last = *s;
	m->has_last = true;
	if (op_opens(s->op))
		ret_result->error = do_open(m, s, &ret_result->joins);
	else if (op_handles(s->op))
		do_handle(m, s, number, ret_result);
	else if (s->op == OP_STORE)
		do_store(m, number);
	else if (s->op == OP_UNMAP)
		do_unmap(m);
	else if (op_names(s->op))
		ret_result->error = model_do_name(m, s, number);
	else if (s->op == OP_ROLLBACK)
		model_do_rollback(m);
	else if (s->op == OP_KILL)
		do_kill(m, s->who);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The model: names, closed trees, the rollback, and which steps there are. */
#include "tests/enumerate/model_internal.h"

#include <errno.h>
#include <string.h>

/* The versions that a history begins with are the names' numbers. */
static void base_content(struct letters *c, unsigned name)
{
	letters_fill(c, (char)('x' + name), BASE_LETTERS);
}

void model_start(struct model *m, bool contract)
{
	struct letters base;

	*m = (struct model){.contract = contract};
	for (unsigned n = 0; n < NAMES; n++) {
		base_content(&base, n);
		m->name[n] = (struct model_name){(int8_t)file_new(m, &base), -1};
	}
}

/* ---- names ---- */

static int do_rename(struct model *m, unsigned from, unsigned to)
{
	struct model_name *n = m->name, old = n[to];
	int8_t file = n[from].file, covered = -1;

	if (file < 0)
		return ENOENT;
	if (file == old.file)
		return 0;
	/* Undone with its writer (contract 1.2.4). */
	if (m->contract && !m->file[file].has_closed && m->body[m->file[file].shown].fragile) {
		covered = old.covered;
		if (covered < 0 && old.file >= 0 && m->file[old.file].has_closed)
			covered = old.file;
	}
	name_set(m, to, file, covered);
	name_set(m, from, -1, -1);
	return 0;
}

static int do_replace(struct model *m, unsigned name, unsigned number)
{
	struct letters c;

	letters_fill(&c, (char)('a' + number), REPLACE_LETTERS);
	name_set(m, name, (int8_t)file_new(m, &c), -1);
	return 0;
}

int model_do_name(struct model *m, const struct step *s, unsigned number)
{
	unsigned name = s->name, other = 1 - name;

	switch (s->op) {
	case OP_RENAME:
		return do_rename(m, name, other);
	case OP_LINK:
		if (m->name[name].file < 0)
			return ENOENT;
		if (m->name[other].file >= 0)
			return EEXIST;
		name_set(m, other, m->name[name].file, -1);
		return 0;
	case OP_UNLINK:
		if (m->name[name].file < 0)
			return ENOENT;
		name_set(m, name, -1, -1);
		return 0;
	default:
		return do_replace(m, name, number);
	}
}

const struct letters *model_sees(const struct model *m, unsigned who, unsigned name,
				 unsigned *ret_links)
{
	int8_t file = m->name[name].file;
	int own;

	*ret_links = 0;
	if (file < 0)
		return NULL;
	for (unsigned n = 0; n < NAMES; n++)
		*ret_links += m->name[n].file == file;
	own = who < PROCESSES ? pending_of(m, (uint8_t)file, (uint8_t)(1u << who)) : -1;
	return &m->body[own >= 0 ? (unsigned)own : m->file[file].shown].now;
}

void model_closed(const struct model *m, struct model_tree *ret_tree)
{
	memset(ret_tree, 0, sizeof(*ret_tree));
	for (unsigned n = 0; n < NAMES; n++) {
		int8_t file = m->name[n].file;

		if (file >= 0 && !m->file[file].has_closed)
			file = m->name[n].covered;
		if (file < 0 || !m->file[file].has_closed)
			continue;
		ret_tree->there[n] = true;
		ret_tree->content[n] = m->file[file].closed;
		ret_tree->maybes[n] = m->file[file].maybes;
		memcpy(ret_tree->maybe[n], m->file[file].maybe, sizeof(ret_tree->maybe[n]));
	}
}

bool model_tree_same(const struct model_tree *a, const struct model_tree *b)
{
	for (unsigned n = 0; n < NAMES; n++)
		if (a->there[n] != b->there[n] || a->maybes[n] != b->maybes[n] ||
		    (a->there[n] && !letters_same(&a->content[n], &b->content[n])))
			return false;
	return true;
}

/* ---- the rollback ---- */

/* Versions open for writing go to torn/. What is open for writing but was not written yet is no
 * version: the contract does not say whether it goes with the file. */
static void tear_writers(struct model *m)
{
	for (unsigned i = 0; i < m->bodies; i++) {
		struct model_body *b = &m->body[i];

		if (!b->writers || b->gone)
			continue;
		if (b->pending || b->dirty)
			b->gone = true;
		else
			m->vague = true;
		b->pending = false;
	}
}

/* The live file that stays: the one at the same path, where it has this version. One that has it at another path keeps it for
 * whoever has it open, and the path gets a new file. */
static int8_t file_that_stays(const struct model *m, unsigned name)
{
	int8_t file = m->name[name].file;

	return file >= 0 && m->file[file].has_closed && m->file[file].version == name ? file : -1;
}

void model_do_rollback(struct model *m)
{
	struct model_name names[NAMES];
	struct letters base;

	tear_writers(m);
	for (unsigned n = 0; n < NAMES; n++)
		names[n] = (struct model_name){file_that_stays(m, n), -1};
	for (unsigned n = 0; n < NAMES; n++) {
		struct model_file *f;

		base_content(&base, n);
		if (names[n].file < 0) {
			names[n].file = (int8_t)file_new(m, &base);
			m->file[names[n].file].version = (uint8_t)n;
			continue;
		}
		f = &m->file[names[n].file];
		if (m->body[f->shown].gone)
			f->shown = body_new(m, (uint8_t)names[n].file, &base);
	}
	memcpy(m->name, names, sizeof(names));
	for (int8_t i = 0; i < (int8_t)m->files; i++)
		file_lost_name(m, i);
}

/* ---- which steps there are ---- */

static bool changes(uint8_t op)
{
	return op == OP_WRITE || op == OP_TRUNCATE || op == OP_MAP ||
	       (op >= OP_ASYNC && op <= OP_STORE);
}

/* Where what becomes of the body is clear: it is what all see, and neither undone nor new nor empty. */
static bool offers_mapping(const struct model *m, const struct model_handle *h)
{
	const struct model_body *b = &m->body[h->body];
	const struct model_file *f = &m->file[b->file];

	return !m->mapping.there && b->now.len && !b->pending && !b->fragile && f->has_closed &&
	       f->closed.len;
}

static bool opens_both_ways(const struct model_handle *h)
{
	return h->descriptors && (h->op == OP_OPEN_WRITE || h->op == OP_OPEN_DIRECT);
}

static bool offers_handle(const struct model *m, const struct step *s)
{
	const struct model_handle *h = &m->handle[s->handle];
	bool writes = h->op != OP_OPEN_READ, again = m->has_last && step_same(&m->last, s);

	switch (s->op) {
	case OP_DUP:
		return h->descriptors == 1;
	case OP_CLOSE:
		return h->descriptors > 0;
	case OP_READ:
		if (m->has_last && m->last.op == OP_READ && m->last.handle >= s->handle)
			return false; /* in the order of handles, once */
		return h->descriptors && h->op <= OP_OPEN_DIRECT;
	case OP_MAP:
		return opens_both_ways(h) && m->body[h->body].now.len;
	case OP_MAP_KEEP:
		return opens_both_ways(h) && offers_mapping(m, h);
	case OP_PUNCH:
		return h->descriptors && writes && !again && m->body[h->body].now.len > PUNCH_AT;
	case OP_COPY:
		return h->descriptors && writes && !again && h->op != OP_OPEN_APPEND;
	case OP_PREALLOCATE:
	case OP_FSYNC:
		return h->descriptors && writes && !again;
	default:
		return h->descriptors && writes;
	}
}

static bool has_handles(const struct model *m, unsigned who)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (m->handle[i].descriptors && m->handle[i].who == who)
			return true;
	return false;
}

static bool has_free_handle(const struct model *m)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (!m->handle[i].descriptors)
			return true;
	return false;
}

/* The contract does not say what becomes of a mapping across a rollback. */
static bool offers_rollback(const struct model *m)
{
	for (unsigned i = 0; i < m->files; i++)
		if (m->file[i].maybes)
			return false;
	return !m->mapping.there;
}

bool model_offers(const struct model *m, const struct step *s)
{
	bool again = m->has_last && step_same(&m->last, s);

	/* The first process is p0, the first name "a"; they begin the same. */
	if (s->who && !(m->used_processes & 1))
		return false;
	if (s->name && !m->used_names)
		return false;
	if (m->vague && (op_opens(s->op) || op_names(s->op) || changes(s->op) ||
			 s->op == OP_ROLLBACK || s->op == OP_FSYNC))
		return false;
	if (op_opens(s->op))
		return has_free_handle(m);
	if (op_handles(s->op))
		return offers_handle(m, s);
	switch (s->op) {
	case OP_STORE:
		return m->mapping.there && m->body[m->mapping.body].now.len;
	case OP_UNMAP:
		return m->mapping.there;
	case OP_KILL:
		return has_handles(m, s->who) || (m->mapping.there && m->mapping.who == s->who);
	case OP_ROLLBACK:
		return m->contract && !again && offers_rollback(m);
	case OP_COMMIT:
		return m->contract && !again;
	case OP_EVICT:
		return m->contract && !again;
	default:
		return true;
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Does a zip that NumPy or Keras closed in good order lack a member, or the end of one? */
#include "lib/format/tails.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/format/zip_entry.h"
#include "lib/util/cleanup.h"

#define TORN 1

/* ---- a member as a source of its own ---- */

struct member {
	const struct tail_source *in;
	uint64_t at, size;
};

static ssize_t member_read(void *arg, void *data, size_t len, uint64_t offset)
{
	const struct member *m = arg;

	if (offset >= m->size)
		return 0;
	if (len > m->size - offset)
		len = (size_t)(m->size - offset);
	return m->in->read(m->in->arg, data, len, m->at + offset);
}

/* Whether the member begins as that format does, or ends before that is told: 1, 0 or -errno. */
static int begins_with(const struct tail_source *member, uint64_t size, const void *magic,
		       size_t magic_len)
{
	uint8_t begin[16] = {0};
	ssize_t got;

	if (magic_len > size)
		magic_len = (size_t)size;
	got = member->read(member->arg, begin, magic_len, 0);
	if (got < 0)
		return (int)got;
	return (size_t)got == magic_len && memcmp(begin, magic, magic_len) == 0;
}

/* ---- the directory ---- */

/* What Keras writes, in this order (keras/src/saving/saving_lib.py). */
#define KERAS_FIRST   "metadata.json"
#define KERAS_CONFIG  "config.json"
#define KERAS_ASSETS  "assets/"
#define KERAS_WEIGHTS "model.weights.h5"

struct look {
	struct zip_span span;
	struct zip_entry first, last, weights;
	bool any, has_weights;
	bool other; /* neither weights nor what Keras has beside them */
};

static bool name_is(const struct zip_entry *e, const char *text)
{
	return text_is(e->name, e->name_len, text);
}

static void entry_look(struct look *l, const struct zip_entry *e)
{
	if (!l->any)
		l->first = *e;
	l->any = true;
	l->last = *e;
	if (name_is(e, KERAS_WEIGHTS)) {
		l->has_weights = true;
		l->weights = *e;
	} else if (!name_is(e, KERAS_FIRST) && !name_is(e, KERAS_CONFIG) &&
		   !text_begins(e->name, e->name_len, KERAS_ASSETS)) {
		l->other = true;
	}
}

/* False where the directory is not understood to its end. */
static bool directory_look(struct look *l, const struct zip_directory *d)
{
	for (uint64_t i = 0; i < d->entries; i++) {
		struct zip_entry e;

		if (!zip_entry_read(&l->span, &e))
			return false;
		entry_look(l, &e);
	}
	return l->any;
}

/* What the span could not read: only an error of the source counts. */
static int span_result(const struct look *l)
{
	return l->span.error == -ENODATA ? 0 : l->span.error;
}

/* ---- members ---- */

typedef int check(const struct tail_source *in, uint64_t size);

/* Judges what the entry holds, where its bytes stand as they are and begin with `magic`. */
static int member_check(struct look *l, const struct tail_source *in, const struct zip_directory *d,
			const struct zip_entry *e, const char *magic, check *is_cut)
{
	struct member m = {.in = in, .size = e->size};
	const struct tail_source source = {.read = member_read, .arg = &m};
	int result;

	/* No array and no HDF5 file is empty, however it is compressed. */
	if (!e->size)
		return TORN;
	if (!zip_entry_is_plain(e))
		return 0;
	result = zip_entry_find(&l->span, in, d, e, &m.at);
	if (result != 1)
		return result == ZIP_ENTRY_CUT ? TORN : span_result(l);
	result = begins_with(&source, m.size, magic, strlen(magic));
	return result > 0 ? is_cut(&source, m.size) : result;
}

static bool is_array(const struct zip_entry *e)
{
	static const char ending[] = ".npy";
	size_t len = sizeof(ending) - 1;

	return e->name_len > len && text_is(e->name + e->name_len - len, len, ending);
}

/* Whether Keras wrote the metadata: 1, 0 or -errno. */
static int is_keras_metadata(struct look *l, const struct tail_source *in,
			     const struct zip_directory *d)
{
	static const char begins[] = "{\"keras_ver";
	struct member m = {.in = in, .size = l->first.size};
	const struct tail_source source = {.read = member_read, .arg = &m};

	if (!zip_entry_is_plain(&l->first) || m.size < sizeof(begins) - 1)
		return 0;
	if (zip_entry_find(&l->span, in, d, &l->first, &m.at) != 1)
		return span_result(l);
	return begins_with(&source, m.size, begins, sizeof(begins) - 1);
}

/* Keras' archive has weights: whole ones, if they are HDF5. Without any it has nothing but what stands beside them. */
static int keras_check(struct look *l, const struct tail_source *in, const struct zip_directory *d,
		       bool named, const char **ret_why)
{
	if (l->has_weights) {
		*ret_why = "it was closed before " KERAS_WEIGHTS " was written";
		return member_check(l, in, d, &l->weights, HDF5_MAGIC, hdf5_check);
	}
	*ret_why = "Keras' archive was closed before its weights were written";
	if (l->other || !name_is(&l->first, KERAS_FIRST))
		return 0;
	return named ? TORN : is_keras_metadata(l, in, d);
}

int zip_members_check(const struct tail_source *in, const struct zip_directory *directory,
		      bool named_keras, const char **ret_why)
{
	cleanup_free struct look *l = calloc(1, sizeof(*l));
	int result;

	if (!l)
		return -ENOMEM;
	zip_span_open(&l->span, in, directory->at, directory->size);
	if (!directory_look(l, directory))
		return span_result(l);
	result = keras_check(l, in, directory, named_keras, ret_why);
	if (result || !is_array(&l->last))
		return result;
	*ret_why = "it was closed before its last array was written";
	return member_check(l, in, directory, &l->last, NPY_MAGIC, npy_check);
}

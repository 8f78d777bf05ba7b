/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's remote without a mount: dropping epochs and bringing them back, as its only writer for the while. */
#include "lib/admin/catalog_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/format/names.h"
#include "lib/meta/lease.h"
#include "lib/meta/records.h"
#include "lib/upload/upload.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"

/* So long another machine waits where this command is killed. */
#define HOLD_TTL (20 * NS_PER_S)

struct catalog_hold {
	struct lease *lease;
	int64_t renewed_ns;
	struct buf tagged; /* numbers */
	void (*waiting)(void *arg, const char *text);
	void *arg;
	const char *name; /* of the remote */
};

/* ---- the lease ---- */

static void tell_waiting(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	struct catalog_hold *h = arg;
	cleanup_buf struct buf text = {0};

	if (!h->waiting)
		return;
	buf_printf(&text, "%s: ", h->name);
	lease_describe_held(holder, &text);
	buf_printf(&text, "; waiting for up to %lld s to see whether it is alive",
		   (long long)(at_most_ns / NS_PER_S));
	h->waiting(h->arg, buf_str(&text));
}

static int take(struct catalog *c, struct catalog_hold *h, struct opening_message *m)
{
	struct lease_terms terms = {.waiting = tell_waiting, .arg = h};
	cleanup_buf struct buf held = {0};
	struct lease_info before = {0};
	int error = lease_process_self(&terms.self);

	if (error)
		return opening_fail(m, error, "lease: %s", strerror(-error));
	terms.self.ttl_ns = HOLD_TTL;
	snprintf(terms.self.node, sizeof(terms.self.node), "%s", terms.self.host);
	error = lease_take(c->remote, &terms, &h->lease, &before);
	h->renewed_ns = clock_mono_ns();
	if (error == -EBUSY) {
		lease_describe_held(&before, &held);
		return opening_fail(m, error,
				    "%s is in use: %s: name the mount point there, or unmount it",
				    h->name, buf_str(&held));
	}
	if (error == -EOPNOTSUPP)
		return opening_fail(m, error,
				    "%s cannot create an object only if it is absent: drop epochs "
				    "through a mount of it",
				    h->name);
	return error ? contact_fail(c->remote, error, m) : 0;
}

static int note_tag(void *arg, const char *name, uint64_t number)
{
	(void)name;
	buf_put(arg, &number, sizeof(number));
	return buf_error(arg);
}

int catalog_hold(struct catalog *c, void (*waiting)(void *arg, const char *text), void *arg,
		 char **ret_message)
{
	struct catalog_hold *h = calloc(1, sizeof(*h));
	struct opening_message m = {0};
	int error;

	if (!h)
		return -ENOMEM;
	*h = (struct catalog_hold){.waiting = waiting, .arg = arg, .name = remote_name(c->remote)};
	c->hold = h;
	error = take(c, h, &m);
	if (!error) {
		/* What was read before may be the work of one who has written since. */
		catalog_forget(c);
		error = catalog_tag_each(c, note_tag, &h->tagged);
		if (error)
			contact_fail(c->remote, error, &m);
	}
	if (error) {
		catalog_release(c);
		*ret_message = m.text;
	}
	return error;
}

void catalog_release(struct catalog *c)
{
	struct catalog_hold *h = c->hold;

	if (!h)
		return;
	c->hold = NULL;
	/* Where it cannot be given back, it lapses. */
	if (h->lease)
		lease_release(h->lease, c->remote, 0);
	lease_free(h->lease);
	buf_free(&h->tagged);
	free(h);
}

/* While it is held: that it is ours still, and renewed in time. -ESTALE, or the remote's. */
static int catalog_confirm(struct catalog *c)
{
	struct catalog_hold *h = c->hold;
	int error;

	if (clock_mono_ns() - h->renewed_ns < HOLD_TTL / LEASE_RENEWALS)
		return lease_confirm(h->lease, c->remote, NS_PER_S);
	error = lease_renew(h->lease, c->remote);
	if (!error)
		h->renewed_ns = clock_mono_ns();
	return error;
}

/* ---- dropping ---- */

static bool is_tagged(const struct catalog_hold *h, uint64_t number)
{
	for (size_t at = 0; at < h->tagged.len; at += sizeof(number))
		if (!memcmp(h->tagged.data + at, &number, sizeof(number)))
			return true;
	return false;
}

/* The next mount's live tree is the newest; but one whose tree is gone is no good to it. */
static bool must_stay(struct catalog *c, const struct epoch_record *record)
{
	uint64_t number = record->number;
	struct tree *tree = NULL;
	int error;

	if (number != epoch_index_newest(&c->epochs) && number != epoch_index_latest(&c->epochs))
		return false;
	error = catalog_tree(c, number, &tree);
	tree_unref(tree);
	return error != -EBADMSG;
}

int catalog_drop(struct catalog *c, uint64_t number)
{
	const struct epoch_record *record;
	int error = catalog_record(c, number, &record);

	/* What is damaged is nobody's. */
	if (error && error != -EBADMSG)
		return error;
	if (is_tagged(c->hold, number) || (!error && must_stay(c, record)))
		return -EBUSY;
	error = catalog_confirm(c);
	if (!error)
		error = records_drop(c->remote, number, NULL);
	if (error)
		return error == -ESTALE ? error : catalog_errno(c, error);
	FAULT_POINT("catalog.dropped");
	catalog_forget_epoch(c, number);
	return 0;
}

/* A volume's remote without a mount: bringing dropped epochs back, as its only writer for the while. */

static int confirm(void *arg)
{
	return catalog_confirm(arg);
}

static int no_local(void *arg, const struct hash *recipe, uint64_t size)
{
	(void)arg, (void)recipe, (void)size;
	return -ENOENT;
}

/* -EEXIST: it is another epoch's. */
static int check_tag(struct catalog *c, const char *tag, uint64_t number)
{
	uint64_t tagged;
	int error = records_tag(c->remote, tag, &tagged);

	if (error == -ENOENT)
		return 0;
	return error ? error : tagged == number ? 0 : -EEXIST;
}

static int bring_back(struct catalog *c, uint64_t number, const char *tag)
{
	char key[KEY_MAX], text[TAG_TEXT_MAX];
	cleanup_buf struct buf json = {0};
	struct undrop u = {.remote = c->remote,
			   .store = c->store,
			   .newest = epoch_index_newest(&c->epochs),
			   .confirm = confirm,
			   .local = no_local,
			   .arg = c};
	int error = undrop_run(&u, number, &json);

	FAULT_POINT("undrop.rows");
	if (!error)
		error = tag_key(tag, key);
	if (error)
		return error;
	tag_text(number, text);
	return remote_put(c->remote, key, text, strlen(text));
}

int catalog_undrop(struct catalog *c, uint64_t number, const char *tag)
{
	const struct epoch_record *record;
	int error = catalog_record(c, number, &record);

	if (error && error != -ENOENT)
		return error;
	if (!tag_name_valid(tag) || tag_name_is_step(tag))
		return -EINVAL;
	error = number ? check_tag(c, tag, number) : -ENOENT;
	if (!error)
		error = catalog_store(c);
	if (!error)
		error = bring_back(c, number, tag);
	if (error)
		return error == -ESTALE || error == -EEXIST || error == -ENODATA
			       ? error
			       : catalog_errno(c, error);
	catalog_forget(c);
	return 0;
}

/* ---- as text ---- */

void undrop_tag(uint64_t number, char ret_name[UNDROP_TAG_MAX])
{
	snprintf(ret_name, UNDROP_TAG_MAX, "undropped-%" PRIu64, number);
}

void undrop_refusal(uint64_t number, struct buf *out)
{
	buf_printf(
		out,
		"epoch %" PRIu64
		" cannot be brought back: garbage collection has deleted what it needs, or it was "
		"dropped before it was in the remote",
		number);
}

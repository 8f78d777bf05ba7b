/* SPDX-License-Identifier: Apache-2.0 */
/* The remote `none`: always empty, takes no writes. */
#include "lib/remote/remote_ops.h"

#include <errno.h>
#include "lib/util/cleanup.h"

static int none_put(struct remote *r, const char *key, const void *data, size_t len)
{
	(void)r, (void)key, (void)data, (void)len;
	return -EROFS;
}

static int none_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	(void)r, (void)key, (void)offset, (void)len, (void)out;
	return -ENOENT;
}

static int none_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	(void)r, (void)key, (void)ret_size;
	return -ENOENT;
}

static int none_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	(void)r, (void)prefix, (void)fn, (void)arg;
	return 0;
}

static int none_delete(struct remote *r, const char *key)
{
	(void)r, (void)key;
	return -EROFS;
}

static int none_check_create(struct remote *r, enum remote_create *ret_create)
{
	(void)r, (void)ret_create;
	return -EROFS;
}

static const struct remote_ops none_ops = {
	.put = none_put,
	.put_if_absent = none_put,
	.get = none_get,
	.size = none_size,
	.list = none_list,
	.delete = none_delete,
	.check_create = none_check_create,
};

int remote_none_open(const struct remote_url *url, const char *text,
		     const struct remote_limits *limits, struct remote **ret_remote)
{
	cleanup_free struct remote *r = NULL;
	int err;

	(void)limits;
	if (url->rest[0] || url->query)
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	err = remote_init(r, &none_ops, text, NULL);
	if (err < 0)
		return err;
	r->is_none = true;
	*ret_remote = steal_ptr(r);
	return 0;
}

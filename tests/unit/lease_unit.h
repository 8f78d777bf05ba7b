/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the lease share: a remote, who may hold its lease, and taking it. */
#ifndef EPOCHFS_TESTS_LEASE_UNIT_H
#define EPOCHFS_TESTS_LEASE_UNIT_H

#include "lib/format/names.h"
#include "lib/meta/lease.h"
#include "lib/net/open.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "tests/unit/unit.h"

#define TTL (1 * NS_PER_S)

static struct remote *remote;

__attribute__((unused)) static void start(void)
{
	unit_ok(remote_open("memory:lease", &remote));
}

__attribute__((unused)) static void stop(void)
{
	remote_close(remote);
}

/* Who is on another host, so that only the object tells whether he lives. */
__attribute__((unused)) static struct lease_terms elsewhere(const char *host)
{
	struct lease_terms terms = {
		.self = {.pid = 7, .pid_started = 8, .pid_namespace = 9, .ttl_ns = TTL}};

	unit_ok(uuid_make(terms.self.boot_id));
	snprintf(terms.self.host, sizeof(terms.self.host), "%s", host);
	return terms;
}

__attribute__((unused)) static struct lease *take(const struct lease_terms *terms)
{
	struct lease_info before = {0};
	struct lease *l = NULL;

	unit_ok(lease_take(remote, terms, &l, &before));
	return l;
}

__attribute__((unused)) static struct lease_view view_of(struct lease *l)
{
	struct lease_view view;

	lease_get(l, &view);
	return view;
}

__attribute__((unused)) static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

__attribute__((unused)) static void put_object(const struct lease_info *l)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];

	unit_ok(lease_encode(l, &text));
	lease_key(l->generation, key);
	unit_ok(remote_put(remote, key, text.data, text.len));
}

/* What `terms` get from a look that does not wait: 0, -EBUSY, or -EINTR for one that would. */
__attribute__((unused)) static int try_take(struct lease_terms terms)
{
	struct lease_info before = {0};
	struct lease *l = NULL;
	int error;

	terms.give_up = at_once;
	error = lease_take(remote, &terms, &l, &before);
	lease_free(l);
	return error;
}

__attribute__((unused)) static int count_object(void *arg, const char *key, uint64_t size)
{
	(void)key;
	(void)size;
	++*(uint64_t *)arg;
	return 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's remote without a mount: who writes to it, and what waits for whom. */
#include "lib/admin/catalog_internal.h"

#include <errno.h>

#include "lib/meta/lease.h"
#include "lib/meta/listing.h"
#include "lib/upload/nodes.h"

int catalog_lease(struct catalog *c, json_t **ret_lease)
{
	struct lease_info l = {0};
	int error = lease_look(c->remote, &l);

	if (error == -ENOENT || (!error && l.released)) {
		*ret_lease = json_pack("{s:s}", "state", "free");
		return *ret_lease ? 0 : -ENOMEM;
	}
	if (error == -EBADMSG) {
		*ret_lease = json_pack("{s:s}", "state", "damaged");
		return *ret_lease ? 0 : -ENOMEM;
	}
	if (error)
		return catalog_errno(c, error);
	*ret_lease = json_pack("{s:s, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "state", "held",
			       "generation", (json_int_t)l.generation, "host",
			       listing_string(l.host), "node", listing_string(l.node), "mountpoint",
			       listing_string(l.mountpoint), "pid", (json_int_t)l.pid, "since_ns",
			       (json_int_t)l.since_ns, "renewed", (json_int_t)l.renewed, "ttl_ns",
			       (json_int_t)l.ttl_ns);
	if (*ret_lease && l.nodes) {
		json_object_set_new(*ret_lease, "run", listing_string(l.run));
		json_object_set_new(*ret_lease, "nodes", json_integer(l.nodes));
	}
	return *ret_lease ? 0 : -ENOMEM;
}

int catalog_waiting(struct catalog *c, json_t **ret_waiting)
{
	int error = nodes_waiting(c->remote, ret_waiting);

	return error ? catalog_errno(c, error) : 0;
}

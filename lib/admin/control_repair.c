/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing the remote of a mount, for `epochfs fsck --repair`. */
#include <stdlib.h>

#include "lib/admin/control_request.h"
#include "lib/admin/repair.h"
#include "lib/util/cleanup.h"

int request_repair(struct request *r)
{
	bool dry_run = json_is_true(json_object_get(r->json, "dry_run"));
	cleanup_free char *message = NULL;
	int error = repair_mount_json(r->vol, dry_run, &r->answer, &message);

	return error && message ? request_fail(r, error, "%s", message) : error;
}

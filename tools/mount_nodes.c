/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a mount: what the options leave open, the environment may say. */
#include "tools/mount_options.h"

#include <stdlib.h>
#include <string.h>

#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/node_names.h"

const char *mount_options_set_nodes(struct mount_options *o, const char *value)
{
	uint64_t nodes;

	o->nodes_auto = !strcmp(value, "auto");
	if (o->nodes_auto)
		return NULL;
	if (parse_u64(value, &nodes) || nodes < 1 || nodes > NODES_MAX)
		return "how many nodes write to the volume together, 1 to 1024, or auto";
	o->volume.nodes = nodes < NODES_MIN ? 0 : (unsigned)nodes;
	return NULL;
}

static const char *environment(const char *name)
{
	return getenv(name);
}

static int take_count(struct mount_options *o, const struct node_names *names)
{
	if (!names->count)
		return cli_error(EXIT_USAGE, "option nodes=auto: %s%s; give nodes=N",
				 names->from ? names->from : "no scheduler is recognized",
				 names->from ? " does not say how many nodes there are"
					     : " in the environment");
	o->volume.nodes = names->count < NODES_MIN ? 0 : names->count;
	return EXIT_DONE;
}

int mount_options_nodes(struct mount_options *o)
{
	struct node_names names;
	int code = EXIT_DONE;

	if (!o->volume.nodes && !o->nodes_auto)
		return EXIT_DONE;
	node_names_find(environment, &names);
	if (o->nodes_auto)
		code = take_count(o, &names);
	if (code != EXIT_DONE || !o->volume.nodes)
		return code;
	if (!o->volume.node && *names.node)
		o->volume.node = mount_options_keep(o, names.node);
	if (!o->volume.run_id && getenv("EPOCHFS_RUN_ID"))
		o->volume.run_id = mount_options_keep(o, getenv("EPOCHFS_RUN_ID"));
	if (!o->volume.run_id && *names.run)
		o->volume.run_id = mount_options_keep(o, names.run);
	if (!o->volume.run_id)
		return cli_error(EXIT_USAGE,
				 "several nodes need a name for the run that they have in common: "
				 "give -o run=ID, the same on all of them");
	return EXIT_DONE;
}

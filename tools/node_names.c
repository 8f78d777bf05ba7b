/* SPDX-License-Identifier: Apache-2.0 */
/* What a scheduler's environment says of the nodes of a run. */
#include "tools/node_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/mount_options.h"

typedef const char *(*get_fn)(const char *name);

/* NULL where it is not set or empty. */
static const char *text(get_fn get, const char *name)
{
	const char *value = get(name);

	return value && *value ? value : NULL;
}

static const char *either(get_fn get, const char *a, const char *b)
{
	const char *value = text(get, a);

	return value ? value : text(get, b);
}

static bool number(const char *value, uint64_t max, uint64_t *ret_number)
{
	return value && parse_u64(value, ret_number) == 0 && *ret_number <= max;
}

static unsigned count(const char *value)
{
	uint64_t n;

	return number(value, NODES_MAX, &n) ? (unsigned)n : 0;
}

static void set_node(struct node_names *n, const char *name, const char *rank)
{
	uint64_t r;

	if (name && options_node_name_valid(name))
		snprintf(n->node, sizeof(n->node), "%s", name);
	else if (number(rank, INT64_MAX, &r))
		snprintf(n->node, sizeof(n->node), "node%s", rank);
}

static void set_run(struct node_names *n, const char *run)
{
	/* What torchrun calls a run that was given no name. */
	if (run && strcmp(run, "none") != 0)
		snprintf(n->run, sizeof(n->run), "%s", run);
}

static bool find_slurm(get_fn get, struct node_names *n)
{
	if (!text(get, "SLURM_JOB_ID"))
		return false;
	n->from = "Slurm";
	n->count = count(either(get, "SLURM_NNODES", "SLURM_JOB_NUM_NODES"));
	set_node(n, text(get, "SLURMD_NODENAME"), text(get, "SLURM_NODEID"));
	set_run(n, text(get, "SLURM_JOB_ID"));
	return true;
}

static bool find_torchrun(get_fn get, struct node_names *n)
{
	if (text(get, "GROUP_WORLD_SIZE") && text(get, "GROUP_RANK")) {
		n->count = count(text(get, "GROUP_WORLD_SIZE"));
		set_node(n, NULL, text(get, "GROUP_RANK"));
		set_run(n, text(get, "TORCHELASTIC_RUN_ID"));
	} else if (text(get, "PET_NNODES")) {
		n->count = count(text(get, "PET_NNODES"));
		set_node(n, NULL, text(get, "PET_NODE_RANK"));
		set_run(n, text(get, "PET_RDZV_ID"));
	} else {
		return false;
	}
	n->from = "torchrun";
	return true;
}

/* Ranks are the same many on each node, or it is not known how many nodes there are. */
static bool find_ranks(get_fn get, const char *all_name, const char *local_name, const char *from,
		       struct node_names *n)
{
	uint64_t all, local;

	if (!text(get, all_name))
		return false;
	n->from = from;
	if (number(text(get, all_name), INT64_MAX, &all) &&
	    number(text(get, local_name), INT64_MAX, &local) && local && all % local == 0 &&
	    all / local <= NODES_MAX)
		n->count = (unsigned)(all / local);
	set_run(n, text(get, "PMIX_NAMESPACE"));
	return true;
}

static bool find_kubernetes(get_fn get, struct node_names *n)
{
	const char *host = text(get, "HOSTNAME"), *index = text(get, "JOB_COMPLETION_INDEX");
	const char *dash = host ? strrchr(host, '-') : NULL;
	uint64_t r;

	if (!text(get, "KUBERNETES_SERVICE_HOST"))
		return false;
	n->from = "Kubernetes";
	if (dash && !number(dash + 1, INT64_MAX, &r))
		dash = NULL;
	set_node(n, index ? NULL : dash ? host : NULL, index);
	if (dash && (!index || !strcmp(dash + 1, index)))
		snprintf(n->run, sizeof(n->run), "%.*s", (int)(dash - host), host);
	return true;
}

void node_names_find(const char *(*get)(const char *name), struct node_names *ret_names)
{
	struct node_names n = {0};

	if (!find_slurm(get, &n) && !find_torchrun(get, &n) &&
	    !find_ranks(get, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI",
			&n) &&
	    !find_ranks(get, "PMI_SIZE", "MPI_LOCALNRANKS", "MPICH", &n))
		find_kubernetes(get, &n);
	*ret_names = n;
}

/* ---- The nodes of a mount: what the options leave open, the environment may say. ---- */

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

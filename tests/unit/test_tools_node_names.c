/* SPDX-License-Identifier: Apache-2.0 */
/* What schedulers' environments say of the nodes of a run. */
#include "tests/unit/unit.h"
#include "tools/node_names.h"

/* NAME=value, NULL at the end. */
static const char *const *environment;

static const char *get(const char *name)
{
	size_t len = strlen(name);

	for (const char *const *e = environment; *e; e++)
		if (!strncmp(*e, name, len) && (*e)[len] == '=')
			return *e + len + 1;
	return NULL;
}

static void check_names(const char *const *set, const char *from, unsigned count, const char *node,
			const char *run)
{
	struct node_names n;

	environment = set;
	node_names_find(get, &n);
	if (from)
		ck_assert_str_eq(n.from, from);
	else
		ck_assert_ptr_null(n.from);
	ck_assert_uint_eq(n.count, count);
	ck_assert_str_eq(n.node, node);
	ck_assert_str_eq(n.run, run);
}

#define SET(...)                                                                                   \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__, NULL                                                                  \
	}

START_TEST(schedulers_are_recognized)
{
	check_names(
		SET("SLURM_JOB_ID=77", "SLURM_NNODES=4", "SLURMD_NODENAME=gpu07", "SLURM_NODEID=2"),
		"Slurm", 4, "gpu07", "77");
	check_names(SET("SLURM_JOB_ID=77", "SLURM_JOB_NUM_NODES=4", "SLURM_NODEID=2"), "Slurm", 4,
		    "node2", "77");
	check_names(SET("GROUP_WORLD_SIZE=2", "GROUP_RANK=1", "TORCHELASTIC_RUN_ID=run"),
		    "torchrun", 2, "node1", "run");
	check_names(SET("GROUP_WORLD_SIZE=2", "GROUP_RANK=1", "TORCHELASTIC_RUN_ID=none"),
		    "torchrun", 2, "node1", "");
	check_names(SET("PET_NNODES=3", "PET_NODE_RANK=0", "PET_RDZV_ID=job"), "torchrun", 3,
		    "node0", "job");
	check_names(SET("OMPI_COMM_WORLD_SIZE=16", "OMPI_COMM_WORLD_LOCAL_SIZE=8",
			"PMIX_NAMESPACE=9@1"),
		    "Open MPI", 2, "", "9@1");
	check_names(SET("PMI_SIZE=16", "MPI_LOCALNRANKS=4"), "MPICH", 4, "", "");
	check_names(SET("KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=3",
			"HOSTNAME=train-3"),
		    "Kubernetes", 0, "node3", "train");
	check_names(SET("KUBERNETES_SERVICE_HOST=10.0.0.1", "HOSTNAME=train-0"), "Kubernetes", 0,
		    "train-0", "train");
}
END_TEST

START_TEST(what_cannot_be_is_not_taken)
{
	check_names(SET("HOSTNAME=train-0"), NULL, 0, "", "");
	check_names(SET("SLURM_NNODES=4"), NULL, 0, "", "");
	check_names(SET("SLURM_JOB_ID=77", "SLURM_NNODES=four", "SLURMD_NODENAME=../x"), "Slurm", 0,
		    "", "77");
	check_names(SET("SLURM_JOB_ID=77", "SLURM_NNODES=5000"), "Slurm", 0, "", "77");
	check_names(SET("PET_NNODES=1:4", "PET_NODE_RANK=0"), "torchrun", 0, "node0", "");
	check_names(SET("OMPI_COMM_WORLD_SIZE=9", "OMPI_COMM_WORLD_LOCAL_SIZE=8"), "Open MPI", 0,
		    "", "");
	check_names(SET("OMPI_COMM_WORLD_SIZE=9", "OMPI_COMM_WORLD_LOCAL_SIZE=0"), "Open MPI", 0,
		    "", "");
	check_names(SET("KUBERNETES_SERVICE_HOST=10.0.0.1", "HOSTNAME=train-abcde"), "Kubernetes",
		    0, "", "");
	/* An empty value is none. */
	check_names(SET("SLURM_JOB_ID=", "PMI_SIZE=2", "MPI_LOCALNRANKS=1"), "MPICH", 2, "", "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_node_names");
	TCase *t = unit_case(s, "names");

	tcase_add_test(t, schedulers_are_recognized);
	tcase_add_test(t, what_cannot_be_is_not_taken);
	return unit_run(s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a scheduler's environment says of the nodes of a run. Pure but for the environment that it is given. */
#ifndef EPOCHFS_TOOLS_NODE_NAMES_H
#define EPOCHFS_TOOLS_NODE_NAMES_H

#include <stdbool.h>
#include "lib/meta/options.h"

struct node_names {
	const char *from; /* the scheduler's name; NULL: none was recognized */
	unsigned count;	  /* nodes; 0: it does not say */
	char node[NODE_TEXT_MAX];
	char run[RUN_TEXT_MAX]; /* "": it does not say */
};

/*
 * The first that is recognized of
 *   Slurm       SLURM_JOB_ID; SLURM_NNODES or SLURM_JOB_NUM_NODES; SLURMD_NODENAME, else SLURM_NODEID
 *   torchrun    GROUP_WORLD_SIZE, GROUP_RANK, TORCHELASTIC_RUN_ID: it sets them for its workers only; or
 *               PET_NNODES (one number), PET_NODE_RANK, PET_RDZV_ID, from which it takes its arguments (Kubeflow)
 *   Open MPI    OMPI_COMM_WORLD_SIZE over OMPI_COMM_WORLD_LOCAL_SIZE, where it divides; PMIX_NAMESPACE
 *   MPICH       PMI_SIZE over MPI_LOCALNRANKS likewise
 *   Kubernetes  KUBERNETES_SERVICE_HOST: JOB_COMPLETION_INDEX (an indexed Job), else the number at the end of
 *               HOSTNAME (a StatefulSet); the run is HOSTNAME without it; it does not tell how many there are
 * Values that cannot be what they should are taken as missing. `get` is getenv or stands for it.
 */
void node_names_find(const char *(*get)(const char *name), struct node_names *ret_names);

#endif

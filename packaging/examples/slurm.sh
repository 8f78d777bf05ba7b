#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slurm, requeued until training is done: sbatch slurm.sh
#
# A minute before its time ends, Slurm sends SIGUSR1 to this script. train.py is told by SIGTERM, saves and ends; epochfs run
# makes that durable and exits with 85, and the job goes back into the queue to start from there.
#
# What this relies on: the signal comes first (B: to this script alone), the SIGTERM of the time limit or of scancel goes to every process of the job,
# and SIGKILL follows that after KillWait (30 s unless slurm.conf says otherwise). SIGTERM reaches the process that serves the mount as well, which
# goes on until epochfs run has ended. train.py may get a signal twice: from Slurm and from epochfs run.
#SBATCH --job-name=run7
#SBATCH --time=04:00:00
#SBATCH --gres=gpu:1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60

# --grace: less than the 60 s above. After a node has failed, --resume starts from the newest whole epoch.
epochfs run --mount s3://my-bucket/run7:/mnt/ckpt --resume --grace 50s -- \
	python3 train.py --checkpoint-dir /mnt/ckpt &
job=$!
# scancel and a preemption send SIGTERM.
interrupted=no
trap 'interrupted=yes; kill -TERM "$job"' USR1 TERM

# A trapped signal ends `wait`, too: the exit code is known once the job is gone.
wait "$job"
code=$?
while [ "$code" -gt 128 ] && kill -0 "$job" 2>/dev/null; do
	wait "$job"
	code=$?
done

# scancel and the time limit itself have ended the job for Slurm, too: a requeue would bring a cancelled job back.
# 6: as 85, but train.py was killed amid a file: it starts from the checkpoint before.
if { [ "$code" -eq 85 ] || { [ "$code" -eq 6 ] && [ "$interrupted" = yes ]; }; } && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then
	scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LAMMPS: the melt of a Lennard-Jones gas. Arguments: those of its command "restart".
set -eu
cat >"$TMPDIR/in.melt" <<INPUT
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 1000
dump 1 all atom 1000 dump.lammpstrj
restart $*
run ${STEPS:-20000}
INPUT
${LMP:-lmp} -log log.lammps -in "$TMPDIR/in.melt" >/dev/null

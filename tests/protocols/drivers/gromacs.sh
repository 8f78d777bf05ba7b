#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# GROMACS: a box of water, a checkpoint every 0.6 s. Inputs are made in $TMPDIR.
set -eu
here=$PWD
cd "$TMPDIR"
printf 'water\n0\n2.0 2.0 2.0\n' >empty.gro
printf '#include "oplsaa.ff/forcefield.itp"\n#include "oplsaa.ff/spce.itp"\n[ system ]\nwater\n[ molecules ]\n' >topol.top
gmx -quiet solvate -cs spc216 -box 2 2 2 -p topol.top -o conf.gro >/dev/null 2>&1
printf '%s\n' 'integrator = md' 'dt = 0.001' 'nsteps = 1000000' 'nstlog = 500' 'nstenergy = 500' 'nstxout = 500' 'nstvout = 500' 'cutoff-scheme = Verlet' \
	'coulombtype = cutoff' 'rvdw = 0.9' 'rcoulomb = 0.9' 'gen-vel = yes' >md.mdp
gmx -quiet grompp -f md.mdp -c conf.gro -p topol.top -o md.tpr -maxwarn 5 >/dev/null 2>&1
cd "$here"
gmx -quiet mdrun -s "$TMPDIR/md.tpr" -deffnm md -cpt 0.01 -maxh 0.0016 -nt 1 >/dev/null 2>&1 || true

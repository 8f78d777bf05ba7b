#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Quantum ESPRESSO: dynamics of two silicon atoms. The potential is one of Debian's examples (quantum-espresso-data).
set -eu
gzip -dc /usr/share/doc/quantum-espresso/examples/EPW/sic/pp/Si.pz-vbc.UPF.gz >"$TMPDIR/si.upf"
cat >"$TMPDIR/si.in" <<INPUT
&control
 calculation='md', prefix='si', outdir='out', pseudo_dir='$TMPDIR', nstep=4, dt=20, disk_io='medium'
/
&system
 ibrav=2, celldm(1)=10.2, nat=2, ntyp=1, ecutwfc=8, nosym=.true.
/
&electrons
 conv_thr=1e-5
/
&ions
/
ATOMIC_SPECIES
 Si 28.086 si.upf
ATOMIC_POSITIONS alat
 Si 0 0 0
 Si 0.26 0.25 0.25
K_POINTS gamma
INPUT
OMP_NUM_THREADS=1 pw.x -in "$TMPDIR/si.in" >"$TMPDIR/si.out" || tail -20 "$TMPDIR/si.out" >&2

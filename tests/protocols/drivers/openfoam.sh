#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# OpenFOAM: the lid-driven cavity of its tutorials (openfoam-examples), written each second. Argument: purgeWrite.
set -eu
export WM_PROJECT_DIR=/usr/share/openfoam
cp -r /usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity "$TMPDIR/case"
gzip -dr "$TMPDIR/case" 2>/dev/null || true
sed -i "s/^\(purgeWrite *\).*/\1$1;/; s/^\(endTime *\).*/\14;/; s/^\(writeInterval *\).*/\1200;/" "$TMPDIR/case/system/controlDict"
cp -r "$TMPDIR/case/." .
blockMesh >/dev/null
icoFoam >/dev/null

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# IQ-TREE: a tree of a random alignment, a checkpoint each second.
set -eu
awk 'BEGIN { srand(1); split("A C G T", b, " "); for (i = 1; i <= 400; i++) base[i] = int(rand() * 4) + 1
	print 24, 400; for (t = 1; t <= 24; t++) { s = ""; for (i = 1; i <= 400; i++) s = s b[rand() < 0.2 ? int(rand() * 4) + 1 : base[i]]; printf "taxon%02d  %s\n", t, s } }' >"$TMPDIR/a.phy"
iqtree2 -s "$TMPDIR/a.phy" -m GTR+G -pre run -cptime 1 -nt 1 -seed 1 >/dev/null

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MrBayes: a random alignment, a checkpoint every 1000 generations.
set -eu
awk 'BEGIN { srand(1); split("A C G T", b, " "); print "#NEXUS\nbegin data;\ndimensions ntax=8 nchar=100;\nformat datatype=dna;\nmatrix"
	for (t = 1; t <= 8; t++) { s = ""; for (i = 1; i <= 100; i++) s = s b[int(rand() * 4) + 1]; print "t" t, s } print ";\nend;"
	print "begin mrbayes;\nset autoclose=yes nowarn=yes seed=1 swapseed=1;\nmcmcp ngen=6000 samplefreq=500 printfreq=1000 checkpoint=yes checkfreq=1000 filename=a nruns=1 nchains=2;\nmcmc;\nend;" }' >"$TMPDIR/a.nex"
mb "$TMPDIR/a.nex" >/dev/null

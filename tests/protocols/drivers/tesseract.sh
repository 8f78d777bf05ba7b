#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tesseract: lstmtraining from scratch on a page that text2image draws.
set -eu
data=$(dirname "$(find /usr/share/tesseract-ocr -name eng.traineddata | head -n 1)")
yes 'the quick brown fox jumps over the lazy dog' | head -n 20 >"$TMPDIR/text"
text2image --text "$TMPDIR/text" --outputbase "$TMPDIR/eng.dejavu" --font 'DejaVu Serif' --fonts_dir /usr/share/fonts/truetype >/dev/null 2>&1
tesseract "$TMPDIR/eng.dejavu.tif" "$TMPDIR/eng.dejavu" --psm 6 lstm.train >/dev/null 2>&1
echo "$TMPDIR/eng.dejavu.lstmf" >"$TMPDIR/list"
lstmtraining --traineddata "$data/eng.traineddata" --net_spec '[1,36,0,1 Ct3,3,4 Mp3,3 Lfx16 O1c111]' --model_output model --train_listfile "$TMPDIR/list" \
	--max_iterations 1000 --learning_rate 1e-3 >"$TMPDIR/log" 2>&1 || tail "$TMPDIR/log" >&2

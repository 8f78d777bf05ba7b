/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of doubt: histories in a line each, over a tree that is a list of paths. */
#include "tests/unit/doubts_unit.h"

static const struct {
	const char *name, *history;
} cases[] = {
	/* ---- a single file in place ---- */
	{"whole", "w:model.pt + w:model.pt +"},
	{"Ctrl-C, then another file", "w:model.pt + t:model.pt - w:notes - n:1 d:model.pt"},
	{"Ctrl-C, saved again", "w:model.pt + t:model.pt - w:model.pt + n:0"},
	{"Ctrl-C, removed", "w:model.pt + t:model.pt - r:model.pt w:x +"},
	{"Ctrl-C, replaced by a rename", "w:m + t:m - w:m.new m:m.new:m +"},
	{"Ctrl-C, renamed", "w:m + t:m - m:m:old - d:old"},
	{"Ctrl-C at the first save", "t:m - w:m +"},
	{"made empty, then filled", "w:m + t:n w:n + n:0"},
	{"made empty, sealed, then filled", "w:m + t:n - w:x - w:n + n:0"},
	{"killed, then another file", "w:m + k:m w:train -"},
	{"killed at the first save", "k:m w:x - w:m +"},
	{"killed alone at the first save", "k:m + n:0"},
	{"killed, saved before the seal", "w:m + k:m w:m + n:0"},
	{"killed twice", "w:a w:m + w:a k:m - k:m - w:m + n:0"},
	{"power loss", "w:m + w:m + p:m w:x - w:m +"},
	{"power loss of what is sealed", "w:m + p:m w:x - w:y - d:m"},

	/* ---- several files in place ---- */
	{"A new, B killed", "w:a w:b + w:a k:b - d:b n:1"},
	{"... then another file", "w:a w:b + w:a k:b - w:notes - w:notes -"},
	{"... B saved", "w:a w:b + w:a k:b - w:b + n:0"},
	{"... A saved, since B is not each time", "w:a w:b + w:a k:b - w:a +"},
	{"... A removed", "w:a w:b + w:a k:b - r:a w:x +"},
	{"... B removed", "w:a w:b + w:a k:b - r:b w:x +"},
	{"... A renamed", "w:a w:b + w:a k:b - m:a:c -"},
	{"... B replaced by a rename", "w:a w:b + w:a k:b - w:b2 m:b2:b +"},
	{"... A replaced by a rename", "w:a w:b + w:a k:b - w:a2 m:a2:a +"},
	{"... both again before the seal", "w:a w:b + w:a k:b w:a w:b + n:0"},
	{"... A again before the seal", "w:a w:b + w:a k:b w:a + n:0"},
	{"... A replaced before the seal", "w:a w:b + w:a k:b w:a2 m:a2:a +"},
	{"... killed again", "w:a w:b + w:a k:b - w:a k:b - w:notes - w:notes - w:b +"},
	{"... killed again after another epoch",
	 "w:a w:b + w:a k:b - w:notes - w:a k:b - w:notes -"},
	{"the first of two killed", "w:a w:b + k:a +"},
	{"the first killed, then another changes", "w:a w:b + k:a w:b - w:b +"},
	{"the last of three killed", "w:a w:b w:c + w:a w:b k:c - w:a - w:b +"},
	{"a torn one and a killed one", "w:a w:b + t:a k:b - n:2 w:b - n:1 w:a +"},
	{"companions are those since the newest complete epoch",
	 "w:a w:b w:c + w:a + k:b w:c - w:c +"},
	{"an incomplete epoch is no beginning", "w:a w:b w:c + t:a - k:b w:x - n:2 w:a - w:x +"},

	{"killed again, in the save after that", "w:a w:c + w:a k:c - k:c w:a - n:1 d:c w:c + n:0"},
	{"... of two directories",
	 "w:step-1/a w:step-1/b + w:step-2/a k:step-2/b - k:step-2/b w:step-2/a - w:step-2/b +"},
	{"... on another machine", "w:a w:c + w:a k:c - x k:a w:c - d:a w:a + n:0"},
	{"the one before is moved there", "w:a w:b w:b.prev + w:a k:b m:b.prev:b - w:b + n:0"},
	{"... after the seal", "w:a w:b w:b.prev + w:a k:b - m:b.prev:b - w:b + n:0"},

	/* ---- rotating directories with steps ---- */
	{"the newest is whole", "w:checkpoint-500/a k:checkpoint-500/b - w:checkpoint-510/a + n:1"},
	{"the newest is torn", "w:checkpoint-500/a + t:checkpoint-510/a - n:1"},
	{"the newest is killed", "w:checkpoint-500/a + w:checkpoint-510/a k:checkpoint-510/b -"},
	{"... and removed", "w:s-step1/a + w:s-step2/a k:s-step2/b - r:s-step2 w:s-step3/a + n:0"},
	{"the older one becomes the newest again",
	 "t:checkpoint-1/a w:checkpoint-2/a + w:checkpoint-1/b - w:checkpoint-2/a +"},
	{"torn in the root beside it", "w:checkpoint-1/a t:best.pt - w:checkpoint-2/a -"},
	{"a note beside it", "w:checkpoint-1/a t:checkpoint-1/b - w:notes -"},
	{"the older torn, a note", "t:checkpoint-1/b w:checkpoint-2/a + w:notes + n:1"},
	{"a job's directory around them",
	 "w:123/step-1/a + w:123/step-2/a k:123/step-2/b w:123/note - w:123/note - w:123/step-2/b +"},
	{"... whose older one is torn", "t:123/step-1/a w:123/step-2/a + w:123/note + n:1"},
	{"... and it is empty", "w:123/step-1/a + k:123/step-2/b w:123/note - r:123/step-2 w:x +"},
	{"... that is torn itself", "w:123/step-1/a t:123/b - w:123/step-2/a - w:123/b +"},
	{"... of another job", "t:123/step-9/a w:124/step-1/a + w:124/note + n:1"},
	{"steps in order of time, not of number", "t:step-9/a w:step-10/a + t:step-2/a -"},
	{"a directory in the checkpoint with the same step",
	 "w:checkpoint-5/a t:checkpoint-5/global_step5/b - w:checkpoint-5/a -"},
	{"an unnumbered directory is of the root",
	 "w:ckpt/a w:checkpoint-5/a + t:ckpt/a - w:checkpoint-6/a -"},
	{"companions are of the unit",
	 "w:checkpoint-5/a + w:notes k:checkpoint-6/a r:checkpoint-6 + n:0"},
	{"killed in its first file", "w:step-5/a + k:step-6/a - n:1 d:step-6/a"},
	{"... then another file", "w:step-5/a + k:step-6/a - w:notes - w:notes -"},
	{"... saved", "w:step-5/a + k:step-6/a - w:step-6/a + n:0"},
	{"... another file of it saved",
	 "w:step-5/a + k:step-6/a - w:step-6/b - w:x - w:step-6/a + n:0"},
	{"... its directory removed", "w:step-5/a + k:step-6/a - r:step-6 w:x + n:0"},
	{"... a greater step saved", "w:step-5/a + k:step-6/a - w:step-7/a + n:1"},
	{"... a smaller one", "w:step-4/a + k:step-6/a - w:step-5/a -"},
	{"... removed before the seal", "w:step-5/a + k:step-6/a r:step-6 w:x + n:0"},
	{"... taken over", "w:step-5/a + k:step-6/a - x w:x - w:step-6/a + n:0"},
	{"... imported", "w:step-5/a + k:step-6/a - i w:x - i r:step-6 + n:0"},
	{"... rolled back and forth", "w:step-5/a + k:step-6/a - b:1 n:0 b:2 n:1 w:x -"},
	{"... by word", "w:step-5/a + k:step-6/a - W w:x + n:0"},
	{"... of the first save", "k:step-6/a - w:step-6/a + n:0"},
	{"... in a directory of it", "w:step-5/a + k:step-6/sub/a - w:step-6/sub/a + n:0"},
	{"... where an epoch has files", "w:step-5/a w:step-6/a + k:step-6/b + n:0"},
	{"... under a temporary name", "w:step-5/a + k:tmp-6/a w:x + m:tmp-6:step-6 -"},
	{"... of an older step", "w:step-5/a + k:step-4/a + n:1"},

	/* ---- names with steps ---- */
	{"each file its step", "w:model_1.pt + t:model_2.pt - w:model_3.pt + n:1"},
	{"several files of a step",
	 "w:m.ckpt-1.index + w:m.ckpt-2.data-00000-of-00001 k:m.ckpt-2.index -"},
	{"... in other directories are others", "w:a/m_2.pt k:b/m_2.pt + n:0"},
	{"killed without others of its step", "w:model_1.pt + w:x k:model_2.pt + n:0"},

	/* ---- removed first, then saved ---- */
	{"all of the root", "w:out/a w:out/b + r:out k:out/a - d:out/a n:1"},
	{"... then another file", "w:out/a w:out/b + r:out k:out/a - w:notes - n:1"},
	{"... saved whole", "w:out/a w:out/b + r:out k:out/a - w:out/a w:out/b + n:0"},
	{"... saved before the seal", "w:out/a w:out/b + r:out k:out/a w:out/a w:out/b +"},
	{"... rolled back", "w:out/a w:out/b + r:out k:out/a - b:1 n:0 w:x +"},
	{"... and forward", "w:out/a w:out/b + r:out k:out/a - b:1 b:2 d:out/a w:x -"},
	{"... taken over", "w:out/a w:out/b + r:out k:out/a - x w:x - d:out/a w:out/a +"},
	{"... by word", "w:out/a w:out/b + r:out k:out/a - W w:x + n:0"},
	{"the file alone", "w:m + r:m k:m w:x - w:x - w:m +"},
	{"the others of the save", "w:a w:b w:c + r:b r:c k:a - w:a w:b w:c +"},
	{"a backup by rename", "w:last w:x + m:last:prev k:last - w:last + n:0"},
	{"a unit with a step", "w:step-1/a w:step-1/b + r:step-1/b k:step-1/a - w:step-1/a +"},
	{"the only step, then the next", "w:step-1/a w:x + r:step-1 k:step-2/a - d:step-2/a"},
	{"... saved again", "w:step-1/a + r:step-1 k:step-2/a - w:step-2/a + n:0"},
	{"... another step instead", "w:step-1/a + r:step-1 k:step-2/a - w:step-3/a + n:1"},
	{"... under a temporary name",
	 "w:step-1/a + r:step-1 k:tmp-c/a - w:tmp-c/a m:tmp-c:step-2 + n:0"},
	{"... of files with steps", "w:m_1.pt + r:m_1.pt k:m_2.pt - w:m_2.pt +"},
	{"the newest step, an older one left",
	 "w:step-1/a + w:step-2/a + r:step-2 k:step-3/a - w:step-3/a +"},
	{"the oldest step, by rotation",
	 "w:step-1/a w:step-2/a + r:step-1 k:step-3/a r:step-3 + n:0"},
	{"a file of no step, then a step",
	 "w:notes w:step-1/a + r:notes k:step-2/a r:step-2 + n:0"},

	/* ---- a temporary directory that is renamed ---- */
	{"killed and done again",
	 "w:c-step0/m + w:_checkpoint/m k:_checkpoint/o r:_checkpoint w:_checkpoint/m"
	 " w:_checkpoint/o m:_checkpoint:c-step1 + n:0"},
	{"killed and done again in place",
	 "w:c-step0/m + w:_checkpoint/m k:_checkpoint/o w:_checkpoint/m"
	 " w:_checkpoint/o m:_checkpoint:c-step1 + n:0"},
	{"killed, and sealed as it is", "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + n:1"},
	{"... then renamed",
	 "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + m:tmp-c:c-step1 - d:c-step1/o"},
	{"... then removed", "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + r:tmp-c w:y + n:0"},
	{"... then saved and renamed",
	 "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + w:tmp-c/o m:tmp-c:c-step1 + n:0"},
	{"the first file of it killed, others after",
	 "k:tmp-c/m w:x + w:tmp-c/o m:tmp-c:c-step1 -"},
	{"torn, then renamed", "w:x + t:tmp-c/m w:x + m:tmp-c:c-step1 -"},
	{"a temporary file of it killed",
	 "w:c-step0/m + w:tmp-c/m k:tmp-c/o.tmp w:x + m:tmp-c:c-step1 - d:c-step1/o.tmp"},

	/* ---- a temporary file that is renamed ---- */
	{"a temporary file killed", "w:m + k:m.tmp w:x + n:0"},
	{"a temporary file torn and renamed", "w:m + t:m.tmp w:x + m:m.tmp:m - w:m +"},
	{"killed alone", "w:m + k:m.tmp + n:0"},
	{"killed beside a whole save that an epoch has", "w:m + k:status.json.tmp w:x + n:0"},
	{"killed at the first save of all", "k:m.tmp w:x + n:0"},
	{"killed after another file of its save", "w:m w:x + w:x k:m.tmp - d:m.tmp n:1"},
	{"... of the first save", "w:x k:m.tmp - w:y - w:m.tmp m:m.tmp:m + n:0"},
	{"... done again", "w:m w:x + w:x k:m.tmp - w:x w:m.tmp m:m.tmp:m + n:0"},
	{"... the file alone", "w:m w:x + w:x k:m.tmp - w:m.tmp m:m.tmp:m + n:0"},
	{"... before the seal", "w:m w:x + w:x k:m.tmp w:m.tmp m:m.tmp:m + n:0"},
	{"... in place", "w:m w:x + w:x k:m.tmp - w:m + n:0"},
	{"... without its rename", "w:m w:x + w:x k:m.tmp - w:m.tmp + n:0"},
	{"... killed again", "w:m w:x + w:x k:m.tmp - k:m.tmp - w:m.tmp m:m.tmp:m + n:0"},
	{"... another process's name", "w:m w:x + w:x k:m.tmp.17 - w:m.tmp.18 m:m.tmp.18:m + n:0"},
	{"... a hidden one", "w:m w:x + w:x k:.m.tmp17 - w:.m.tmp18 m:.m.tmp18:m + n:0"},
	{"... one that begins so", "w:m w:x + w:x k:tmp-m.pt - w:tmp-m.pt m:tmp-m.pt:m.pt + n:0"},
	{"... and goes on so", "w:m w:x + w:x k:tmp-m.pt - w:m.pt + n:0"},
	{"... one that tells no other", "w:m w:x + w:x k:tmp-1 - w:tmp-1 m:tmp-1:m + n:0"},
	{"... nor comes again", "w:m w:x + w:x k:tmp-1 - w:tmp-2 m:tmp-2:m - w:x + n:0"},
	{"... the companion saved", "w:m w:x + w:x k:m.tmp - w:x + n:0"},
	{"... by a rename", "w:m w:x + w:x k:m.tmp - w:x.tmp m:x.tmp:x + n:0"},
	{"... removed", "w:m w:x + w:x k:m.tmp - r:x w:y + n:0"},
	{"... one of two", "w:x w:y k:m.tmp - w:x - w:y + n:0"},
	{"... a longer name",
	 "w:x w:m.st k:m.st.index.json.tmp - w:m.st - w:m.st.index.json + n:0"},
	{"... in another directory", "w:d/x k:d/m.tmp - w:m - w:d/m + n:0"},
	{"... by who began before", "w:r0 w:r1 + o:r0 k:r1.tmp c:r0 - w:r1.tmp m:r1.tmp:r1 +"},
	{"... rolled back", "w:m w:x + w:x k:m.tmp - b:1 n:0 w:x +"},
	{"... and forward", "w:m w:x + w:x k:m.tmp - b:1 b:2 d:m.tmp w:y - w:m + n:0"},
	{"... taken over", "w:m w:x + w:x k:m.tmp - x w:y - d:m.tmp w:m.tmp m:m.tmp:m + n:0"},
	{"... by word", "w:m w:x + w:x k:m.tmp - W w:y + n:0"},
	{"... imported", "w:m w:x + w:x k:m.tmp - i w:y - d:m.tmp i w:m + n:0"},
	{"... its companion imported", "w:m w:x + w:x k:m.tmp - i w:x + n:0"},
	{"killed after its final name was removed", "w:m w:x + r:m k:m.tmp w:x - w:m + n:0"},
	{"left half", "w:m w:x + w:x h:m.tmp - w:y - w:m.tmp m:m.tmp:m + n:0"},
	{"... and removed", "w:m w:x + w:x h:m.tmp - r:m.tmp w:y - w:x + n:0"},
	{"... and renamed by hand", "w:m w:x + w:x h:m.tmp - m:m.tmp:m - d:m"},
	{"left half alone", "w:m w:x + h:m.tmp w:y + n:1"},
	{"of a step by its name", "w:m_1.pt + w:x k:m_2.pt.tmp + n:0"},
	{"... with another file",
	 "w:c-1.index + w:c-step2.index k:c-step2.meta.tmp1 - w:c-step3.a +"},

	/* ---- a name that is not known to be temporary ---- */
	{"killed and done again, renamed", "w:m + k:m.new w:m.new m:m.new:m + n:0"},
	{"... over what an epoch has", "w:m w:x + w:x k:m.new - w:m.new m:m.new:m + n:0"},
	{"... by who began before", "w:m w:x + o:m.new w:x k:m.new c:m.new m:m.new:m -"},
	{"... the new one moved away", "w:m w:x + w:x k:m w:m m:m:z + n:0"},

	/* ---- torch.distributed.checkpoint: shards, then .metadata by a rename ---- */
	{"the metadata of a step killed", "w:step-1/0 w:step-1/.metadata +"
					  " w:step-2/0 w:step-2/1 k:step-2/.metadata.tmp -"
					  " d:step-2/.metadata.tmp n:1"},
	{"... of the first step", "w:step-1/0 k:step-1/.metadata.tmp - w:notes -"},
	{"... done again", "w:step-1/0 k:step-1/.metadata.tmp - w:step-1/0 w:step-1/.metadata.tmp"
			   " m:step-1/.metadata.tmp:step-1/.metadata + n:0"},
	{"... and the next step", "w:step-1/0 k:step-1/.metadata.tmp - w:step-2/0"
				  " w:step-2/.metadata.tmp"
				  " m:step-2/.metadata.tmp:step-2/.metadata + n:1"},
	{"... and removed", "w:step-1/0 k:step-1/.metadata.tmp - r:step-1 w:step-2/0 + n:0"},
	{"... left half", "w:step-1/0 h:step-1/.metadata.tmp - r:step-1/.metadata.tmp w:x -"},
	{"in place", "w:0 w:1 w:.metadata + w:0 w:1 k:.metadata.tmp - w:notes - w:0 -"
		     " w:.metadata.tmp r:.metadata m:.metadata.tmp:.metadata + n:0"},

	/* ---- copies ---- */
	{"last and best, torn while copied", "w:last w:best + w:last t:best - w:best +"},
	{"best copied from a torn last", "w:last w:best + t:last t:best - w:last - w:best +"},
	{"best killed after last", "w:last w:best + w:last k:best - w:last +"},

	/* ---- a config written once ---- */
	{"killed at the start", "k:config.json + w:model + w:model +"},
	{"killed at the start, beside a model", "w:model + k:config.json w:model - w:model +"},

	/* ---- two ranks ---- */
	{"one killed while the other writes",
	 "w:c-step1/0 w:c-step1/1 + o:c-step2/0 k:c-step2/1 c:c-step2/0 -"},
	{"... and saves the same files once more",
	 "w:r0 w:r1 + w:r0 k:r1 - o:r0 k:r1 c:r0 - w:notes - w:r1 +"},
	{"... and renames what it has written before",
	 "w:r0 w:r1 + w:r0 k:r1 - w:r0 w:r0.new k:r1 m:r0.new:r0 - w:notes - w:r1 +"},
	{"one killed after the other",
	 "w:c-step1/0 + w:c-step2/0 k:c-step2/1 - w:c-step3/0 w:c-step3/1 +"},
	{"one killed, the other goes on twice", "w:r0 w:r1 + k:r1 w:r0 w:r0 + n:0"},
	{"one killed before the other begins", "w:r0 w:r1 + k:r1 w:r0 - w:r0 w:r1 +"},
	{"both killed", "w:r0 w:r1 + k:r0 k:r1 + n:0"},

	/* ---- what a killed writer left ---- */
	{"a database", "w:a + e:runs.db - w:a + n:0"},
	{"a database, written again", "w:a + e:runs.db w:runs.db + n:0"},

	/* ---- rollback, other machines, the word of somebody ---- */
	{"rolled back", "w:a w:b + w:a k:b - b:1 n:0 w:x +"},
	{"... and forward", "w:a w:b + w:a k:b - b:1 b:2 d:b w:x - w:a +"},
	{"torn, rolled back and forward", "w:a + t:a - b:1 w:x + b:2 w:y - w:a +"},
	{"a restored tree has the same newest unit",
	 "t:step-1/a w:step-2/a + w:step-3/a + b:1 w:x + n:1"},
	{"taken over", "w:a w:b + w:a k:b - x w:x - d:b w:b + n:0"},
	{"taken over, companion saved", "w:a w:b + w:a k:b - x w:a + n:0"},
	{"taken over twice", "w:a w:b + w:a k:b - x w:x - x w:y - d:b"},
	{"torn, taken over", "w:a + t:a - x w:x - w:a +"},
	{"older unit, taken over", "w:step-1/a k:step-1/b - w:step-2/a + x w:x + n:1"},
	{"by word", "w:a w:b + t:a k:b - W n:0 w:x +"},
	{"by word, then torn again", "w:a + t:a - W t:a -"},

	/* ---- rolled back to half a save ---- */
	{"continued",
	 "w:step-1/a w:step-1/b + w:step-2/a + w:step-2/b ~ b:2 n:1 d:step-2/b w:notes - w:notes -"},
	{"... the rest saved",
	 "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 w:notes - w:step-2/b + n:0"},
	{"... the rest saved at once",
	 "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 w:step-2/b + n:0"},
	{"... all of the rest",
	 "w:step-2/a + w:step-2/b w:step-2/c ~ b:1 n:2 w:step-2/b - w:step-2/c + n:0"},
	{"... its beginning saved again",
	 "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 w:step-2/a + n:0"},
	{"... removed", "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 r:step-2 w:notes + n:0"},
	{"... the next step", "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 w:step-3/a + n:1"},
	{"... by word", "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 W w:notes + n:0"},
	{"... forward", "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 b:3 n:0 w:notes +"},
	{"... and back",
	 "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 b:3 b:4 d:step-2/b n:1 w:notes -"},
	{"... taken over", "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 x w:x - x w:step-2/b + n:0"},
	{"... imported",
	 "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 i w:x - d:step-2/b i w:step-2/b + n:0"},
	{"... twice",
	 "w:step-2/a + w:step-2/b ~ w:step-2/c ~ b:1 n:2 w:x - b:2 n:1 d:step-2/c w:x -"},
	{"... killed in the rest",
	 "w:step-1/a + w:step-2/a + w:step-2/b ~ b:2 k:step-2/b - w:step-2/b +"},
	{"... with nothing of that unit", "w:step-1/a + w:notes + w:step-2/a ~ b:2 n:0 w:notes +"},
	{"... in directories without a step", "w:o/a + w:p/a + w:p/b ~ b:2 d:p/b w:x - w:p/b +"},
	{"... below another directory",
	 "w:step-2/a + w:step-2/s/b ~ b:1 d:step-2/s/b w:x - w:step-2/s/b +"},
	{"for another reason", "w:a w:b + w:a w:b ! b:2 n:1 d:b w:x - w:b + n:0"},
	{"... of a step",
	 "w:step-1/a + w:step-2/a w:notes ! b:2 n:1 d:step-2/a w:notes - w:step-2/a +"},
	{"... without a change", "w:a + r:b ! b:2 n:0 w:x +"},
	{"... the first epoch", "w:a ! b:1 n:1 w:x - r:a w:y + n:0"},

	/* ---- a node of a set ---- */
	{"killed alone", "w:b + a:b - w:notes - d:b w:notes - w:b + n:0"},
	{"... and removed", "w:b + a:b - w:notes - r:b w:x + n:0"},
	{"... replaced by a rename", "w:b + a:b - w:notes - w:b2 m:b2:b + n:0"},
	{"... saved before the seal", "w:b + a:b w:b + n:0"},
	{"... at the first save", "a:b - w:d/x - w:notes + n:0"},
	{"... with another file after it", "a:b w:notes - w:notes +"},
	{"... of a new name", "w:b + a:tmpab12 - w:d/x - w:b + n:0"},
	{"... taken over", "w:b + a:b - x w:notes - d:b x w:b + n:0"},
	{"... rolled back and forward", "w:b + a:b - b:1 n:0 w:x + b:2 d:b w:x - w:b +"},
	{"... imported", "w:b + a:b - i w:x - d:b i w:b + n:0"},
	{"... by word", "w:b + a:b - w:x - W n:0 w:x +"},
	{"... of a step", "w:step-1/b + w:step-2/c + a:step-2/b - w:notes - w:step-3/b + n:1"},
	{"... with companions, which are saved again", "w:a w:b + w:a a:b - w:x - w:a + n:0"},
	{"... the directory is left", "w:step-1/b + a:step-2/b - w:notes - w:step-2/b + n:0"},
	{"... the directory is removed", "w:step-1/b + a:step-2/b - w:notes - r:step-2 w:x +"},
	{"killed alone under a temporary name",
	 "w:b + a:b.tmp4711 - w:notes - d:b.tmp4711 w:b + n:0"},
	{"... and again", "w:b + a:b.tmp4711 - w:notes - w:b.tmp5 m:b.tmp5:b + n:0"},
	{"... that is the first", "a:b.tmp4711 - w:d/x - w:b.tmp5 m:b.tmp5:b + n:0"},
	{"... that tells no final one", "w:d/b + a:d/tmp-4711 - w:notes - w:d/b + n:0"},
	{"... as another file shows", "w:b + a:tmp-4711 - w:d/x - w:c + n:0"},

	/* ---- which unit was changed last ---- */
	{"a torn one gets its name last",
	 "w:step-1/a + t:tmp-2/a w:step-1/e m:tmp-2:step-2 - d:step-2/a"},
	{"half of one does", "w:step-1/a + w:tmp-2/a k:tmp-2/b w:step-1/e m:tmp-2:step-2 -"},
	{"a whole one does", "w:step-1/a + w:tmp-2/a t:step-1/e m:tmp-2:step-2 + n:1"},
	{"several in a directory do", "w:step-1/a + t:tmp-2/r/step-2/a w:step-1/e m:tmp-2:r -"},
	{"an older torn one gets a higher step",
	 "t:step-2/a - w:step-3/a + m:step-2:step-4 - d:step-4/a"},
	{"... and is still the newest", "t:step-2/a - w:step-3/a + m:step-2:step-4 - w:notes -"},
	{"... until another is saved",
	 "t:step-2/a - w:step-3/a + m:step-2:step-4 - w:step-5/a + n:1"},
	{"an older whole one is moved", "w:step-1/a + t:step-2/a - m:step-1:old/step-1 -"},
	{"a torn one is moved", "w:step-1/a w:step-2/a + t:step-2/a - m:step-2:x/step-2 -"},
	{"an older one is touched", "w:step-1/a + t:step-2/a - u:step-1/a w:notes - w:more -"},
	{"... elsewhere", "w:step-1/a + t:step-2/a - u:step-1/a x w:notes - w:more -"},
	{"... and imported", "w:step-1/a + t:step-2/a - u:step-1/a i w:notes - i w:more -"},
	{"... after a kill",
	 "w:step-1/a + w:step-2/a k:step-2/b - u:step-1/a w:notes - x w:more -"},
	{"... and rolled back", "w:step-1/a + t:step-2/a - u:step-1/a w:notes - b:1 b:3 w:more -"},
	{"the newest is removed", "t:step-1/a w:step-2/a + r:step-2 w:notes -"},

	/* ---- a directory of a rank is gone ---- */
	{"of a file that never was",
	 "w:step-1/0/a w:step-1/1/a + w:step-2/0/a k:step-2/1/a - r:step-2/1 w:x -"},
	{"... and the rest",
	 "w:step-1/0/a + w:step-2/0/a k:step-2/1/a - r:step-2/1 w:x - r:step-2 w:y + n:0"},
	{"... and the rest saved",
	 "w:step-1/0/a + w:step-2/0/a k:step-2/1/a - r:step-2/1 w:x - w:step-2/0/a +"},
	{"... and made again",
	 "w:step-1/0/a + w:step-2/0/a k:step-2/1/a - r:step-2/1 w:x - w:step-2/1/a + n:0"},
	{"... before the seal", "w:step-1/0/a + w:step-2/0/a k:step-2/1/a r:step-2/1 - n:1"},
	{"of a file that was there", "w:a/m w:b/m + w:a/m k:b/m - r:b w:x + n:0"},

	/* ---- imports ---- */
	{"a torn file, imported as it is", "w:a + i t:a - i w:x - n:1 d:a"},
	{"... and whole", "w:a + i t:a - i w:a + n:0"},
	{"... and removed", "w:a + i t:a - i r:a w:x +"},
	{"what a mount had torn", "w:a + t:a - i w:x - d:a i w:a + n:0"},
	{"what a mount had killed", "w:a w:b + w:a k:b - i w:x - d:b i w:y - n:1"},
	{"... saved whole", "w:a w:b + w:a k:b - i w:b + n:0"},
	{"... its companion saved", "w:a w:b + w:a k:b - i w:a + n:0"},
	{"... its companion removed", "w:a w:b + w:a k:b - i r:a w:x +"},
	{"... by word", "w:a w:b + w:a k:b - W i w:x + n:0"},
	{"removed first, then killed", "w:o/a w:o/b + r:o k:o/a - i w:x - i w:o/a w:o/b + n:0"},
	{"the next step is whole", "w:step-1/a t:step-1/b - i w:step-2/a + n:1"},
	{"the older step is torn", "t:step-1/b w:step-2/a + i w:notes + n:1"},
	{"a mount goes on after it", "w:a w:b + w:a k:b - i w:x - x w:y - w:b + n:0"},
};

START_TEST(a_history)
{
	char text[512], *word, *rest = NULL;
	static const struct volume_options options;
	static struct world w;

	w = (struct world){0};
	unit_ok(rules_new(&options, &w.rules));
	snprintf(text, sizeof(text), "%s", cases[_i].history);
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		do_word(&w, cases[_i].name, word);
	rules_free(w.rules);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_doubts_history");
	TCase *c = unit_case(s, "histories");

	tcase_add_loop_test(c, a_history, 0, (int)(sizeof(cases) / sizeof(*cases)));
	return unit_run(s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of subcommands: what the parser takes, what the help prints, and what completions are made of. */
#include "tools/cli.h"

#include <stddef.h>

static const struct command_option of_mount[] = {
	{"foreground", 'f', NULL, "stay in the foreground, log to stderr"},
	{"options", 'o', "OPTION[,...]",
	 "an option; several by commas or several -o; also --NAME=value, or EPOCHFS_NAME=value"},
	{"take-over", 0, NULL, "take the volume from a mount elsewhere that writes to it"},
	{"help-all", 0, NULL, "all that -o takes"},
	{0},
};

static const struct command_option of_umount[] = {
	{"no-drain", 0, NULL, "leave the upload to the next mount"},
	{"timeout", 0, "TIME", "wait at most so long (then exit 7, still mounted)"},
	{0},
};

static const struct command_option of_status[] = {
	{"json", 0, NULL, "one JSON object"},
	{"watch", 'w', NULL, "refresh every second until interrupted"},
	{"usage", 0, NULL, "also read from the remote what it takes to say what epochs take there"},
	{0},
};

static const struct command_option of_log[] = {
	{"json", 0, NULL, "one JSON array"},
	{"count", 'n', "COUNT", "only the newest COUNT; also -COUNT"},
	{"graph", 0, NULL, "draw which epoch each was made from: what a rollback left is a branch"},
	{0},
};

static const struct command_option of_latest[] = {
	{"complete", 0, NULL, "the newest whole one: no killed writer, nothing torn"},
	{"step", 0, "N", "the newest of this training step"},
	{"path", 0, NULL, "MOUNT/.epochs/NUMBER, or REMOTE@NUMBER"},
	{"json", 0, NULL, "its record"},
	{0},
};

static const struct command_option of_show[] = {
	{"json", 0, NULL, "the record with its files as one JSON object"},
	{0},
};

static const struct command_option of_diff[] = {
	{"json", 0, NULL, "one JSON object"},
	{0},
};

static const struct command_option of_commit[] = {
	{"json", 0, NULL, "one JSON object"},
	{"whole", 0, NULL, "what is in doubt is whole: you know it"},
	{"tag", 0, "NAME", "name it"},
	{"step", 0, "N", "the training step; overrides the one that names tell"},
	{"message", 'm', "TEXT", "a message kept with it"},
	{"db-type", 0, "TYPE",
	 "what a metadata writer says of the checkpoint; kept with it, and in the catalog"},
	{"db-prefix", 0, "TEXT", "likewise"},
	{"path-type", 0, "TYPE", "likewise"},
	{"path-prefix", 0, "TEXT", "likewise"},
	{"node-names", 0, "NAME[,NAME...]", "likewise"},
	{0},
};

static const struct command_option of_explain[] = {
	{"rules", 0, NULL, "the rules that make a save an epoch, of mounts with -o rules=2"},
	{"json", 0, NULL,
	 "one JSON array, an object for each fact; of the rules one object with both tables"},
	{0},
};

static const struct command_option of_wait[] = {
	{"json", 0, NULL, "one JSON object"},
	{"timeout", 0, "TIME", "exit 7 when it takes longer"},
	{0},
};

static const struct command_option of_rollback[] = {
	{"json", 0, NULL, "one JSON object"},
	{0},
};

static const struct command_option of_tag[] = {
	{"json", 0, NULL, "with TARGET alone: the tags as one JSON object"},
	{"force", 'f', NULL, "move NAME where it is taken"},
	{"delete", 'd', NULL, "remove the tag NAME"},
	{0},
};

static const struct command_option of_rm[] = {
	{"json", 0, NULL, "one JSON object"},
	{0},
};

static const struct command_option of_undrop[] = {
	{"json", 0, NULL, "one JSON object"},
	{"tag", 0, "NAME",
	 "the tag that it gets, so that no policy drops it again (default: undropped-EPOCH)"},
	{0},
};

static const struct command_option of_prune[] = {
	{"keep", 0, "POLICY",
	 "rules: last:N, hourly:N, daily:N, weekly:N, monthly:N, yearly:N, every:N (steps), tagged; an epoch stays where one of them wants it"},
	{"dry-run", 'n', NULL, "only say what would be done"},
	{"json", 0, NULL, "one JSON object"},
	{"gc", 0, NULL, "then collect the garbage of the remote, as epochfs gc does"},
	{"grace", 0, "TIME", "for how long what is condemned stays (default: 24h)"},
	{0},
};

static const struct command_option of_export[] = {
	{"json", 0, NULL, "one JSON object"},
	{"force", 0, NULL,
	 "into a directory that is not empty; files are replaced, but those that are right already are not fetched: so an export that was killed goes on"},
	{"privileged", 0, NULL,
	 "as root, also setuid, setgid, device nodes and attributes but user.*; of a remote that you trust as you trust root here"},
	{"threads", 0, "N", "so many files at once (default: 0, one a core)"},
	{0},
};

static const struct command_option of_import[] = {
	{"step", 0, "N", "the training step; overrides the one that names tell"},
	{"tag", 0, "NAME", "name the epoch"},
	{"message", 'm', "TEXT", "a message kept with it"},
	{"remove", 0, "PATH",
	 "no directory is read: the newest epoch without this file or directory; exit 5 where it has none"},
	{"json", 0, NULL, "one JSON object"},
	{"allow-changing", 0, NULL,
	 "what keeps changing is taken as it was read; the epoch is not complete"},
	{"read-all", 0, NULL, "also files that have not changed since the last import from here"},
	{"take-over", 0, NULL, "take the volume from who writes to it"},
	{"options", 'o', "OPTION[,...]",
	 "as of a mount: cache-dir, patience, lease, log, step, node, run-id, threads, ..."},
	{0},
};

static const struct command_option of_watch[] = {
	{"json", 0, NULL, "one JSON object a line for each epoch"},
	{"grace", 0, "TIME",
	 "from SIGTERM or SIGINT until what is settled must be in the remote (default: 25s)"},
	{"poll", 0, "TIME", "list the directory so often instead of being told of changes"},
	{"take-over", 0, NULL, "take the volume from who writes to it"},
	{"options", 'o', "OPTION[,...]",
	 "as of a mount: settle, patience, temporary, marker, log, step, cache-dir, lease, ..."},
	{0},
};

static const struct command_option of_run[] = {
	{"mount", 0, "REMOTE:DIRECTORY", "mount it there first, unmount after"},
	{"options", 'o', "OPTION[,...]", "options of that mount"},
	{"resume", 0, NULL,
	 "after a killed or torn save, start from the newest whole epoch: -o resume"},
	{"checkpoint-exit-code", 0, "CODE",
	 "where it was interrupted and all is durable (default: 85)"},
	{"grace", 0, "TIME", "from the first signal until all must be durable (default: 25s)"},
	{0},
};

static const struct command_option of_verify[] = {
	{"json", 0, NULL, "one JSON object"},
	{"deep", 0, NULL, "a database that is not whole is damage"},
	{0},
};

static const struct command_option of_cache[] = {
	{"json", 0, NULL, "one JSON object; of list an array"},
	{"force", 'f', NULL, "with drop: also what has something that is nowhere else"},
	{"cache-dir", 0, "DIR", "with list and drop: where the caches lie"},
	{0},
};

static const struct command_option of_fsck[] = {
	{"json", 0, NULL, "one JSON object"},
	{"read-data", 0, NULL, "read and check every byte, not only what names it"},
	{"repair", 0, NULL,
	 "read all, restore what the remote has twice or a cache of this machine has, and say what is gone (6); TARGET is a remote, or a mount that writes to it"},
	{"dry-run", 0, NULL, "with --repair: say what it would do, and write nothing"},
	{"cache-dir", 0, "DIR", "with --repair of a remote: where the caches of this machine lie"},
	{0},
};

static const struct command_option of_gc[] = {
	{"json", 0, NULL, "one JSON object"},
	{"dry-run", 'n', NULL, "only say what would be done"},
	{"grace", 0, "TIME", "what is condemned stays so long before it is deleted (default: 24h)"},
	{"rewrite-below", 0, "PERCENT",
	 "a pack with less of it live is rewritten without the rest; 0: none is (default: 50)"},
	{0},
};

static const struct command_option of_key[] = {
	{"json", 0, NULL, "one JSON array or object"},
	{"new-passphrase-file", 0, "FILE", "with add: the passphrase that opens the volume, too"},
	{"new-key-file", 0, "FILE", "with add: the key file that does"},
	{0},
};

static const struct command_option of_check[] = {
	{"json", 0, NULL, "one JSON object"},
	{"size", 0, "SIZE", "of the objects that measure throughput (default: 8M)"},
	{0},
};

static const struct command_option of_doctor[] = {
	{"json", 0, NULL, "one JSON array, an object for each finding"},
	{"quiet", 'q', NULL, "only what is wrong"},
	{0},
};

static const struct command_option of_config[] = {
	{"json", 0, NULL, "one JSON object"},
	{0},
};

static const struct command_option of_debug[] = {
	{"output", 'o', "FILE", "the file that is written (default: epochfs-debug-TIME.tar, here)"},
	{0},
};

static const struct command_option of_help[] = {
	{"json", 0, NULL, "the tables of commands and options as one JSON object"},
	{0},
};

static const struct command_option no_options[] = {{0}};

/* What every command takes. */
const struct command_option common_command_options[] = {
	{"passphrase-file", 0, "FILE", "the passphrase of an encrypted remote"},
	{"key-file", 0, "FILE", "its key file"},
	{"help", 'h', NULL, "what the command takes"},
	{0},
};

const struct command command_table[] = {
	{"mount", "[-f] [--take-over] [-o OPTION[,...]] REMOTE DIRECTORY",
	 "mount a volume where training code expects its checkpoint directory", of_mount,
	 "REMOTE is /abs/dir, file:///abs/dir, memory:NAME, none, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,\n"
	 "https://HOST/PATH, http://HOST/PATH, sftp://HOST/DIR, exec:PROGRAM ARGS, or fault+URL.\n"
	 "Example: epochfs mount /backup/run7 /mnt/ckpt\n",
	 command_mount},
	{"umount", "[--no-drain] [--timeout TIME] DIRECTORY",
	 "seal what is pending, upload it, and unmount", of_umount, NULL, command_umount},
	{"status", "[--json] [--watch] [--usage] [TARGET]",
	 "what is mounted, pending, uploaded, and what failed", of_status,
	 "Its first lines say what latest is and where, what is wrong and what to do, and what is pending. Without TARGET,\n"
	 "outside of any mount: these lines of each mount of yours.\n",
	 command_status},
	{"log", "[--json] [-n COUNT] [--graph] [TARGET]", "the epochs, newest first", of_log, NULL,
	 command_log},
	{"latest", "[--json] [--complete] [--step N] [--path] [TARGET]",
	 "the number or the path of the newest epoch, for scripts", of_latest,
	 "Example: train.py --resume-from $(epochfs latest --complete --path /mnt/ckpt)/model.pt\n",
	 command_latest},
	{"show", "[--json] [TARGET] [EPOCH]", "one epoch: its record and its files", of_show, NULL,
	 command_show},
	{"explain", "[--json] [DIRECTORY] [EPOCH]\n--rules [--json]",
	 "what happened in a mount since the last epoch, or before one, in its order", of_explain,
	 "Who opened, closed, renamed and removed what, and what sealed the epoch. A mount keeps what happened last, since it was mounted.\n",
	 command_explain},
	{"diff", "[--json] [TARGET] EPOCH [EPOCH]",
	 "paths added, changed and removed between two epochs", of_diff,
	 "With one EPOCH: what it changed against the one before it.\n", command_diff},
	{"commit", "[--json] [--tag NAME] [--step N] [-m TEXT] [--whole] [DIRECTORY]",
	 "seal an epoch now", of_commit, NULL, command_commit},
	{"wait", "[--json] [--timeout TIME] [DIRECTORY] [EPOCH]",
	 "wait until an epoch, or all that is closed now, is durable in the remote", of_wait, NULL,
	 command_wait},
	{"restart", "[DIRECTORY]",
	 "restart the process that serves a supervised mount, as after an upgrade", no_options,
	 "The mount stays, and so do open files. It takes -o supervise at the mount.\n"
	 "Example: epochfs restart /mnt/ckpt\n",
	 command_restart},
	{"rollback", "[--json] [DIRECTORY] EPOCH",
	 "make the live tree equal to an epoch; nothing is lost", of_rollback,
	 "What is pending is sealed first, as an epoch; then live is the tree of EPOCH again, under a new number.\n",
	 command_rollback},
	{"tag", "[-f] [TARGET] EPOCH NAME\n-d [TARGET] NAME\n[--json] [TARGET]",
	 "name an epoch, remove a name, or list the names", of_tag, NULL, command_tag},
	{"rm", "[--json] [TARGET] EPOCH...", "drop epochs, here and in the remote", of_rm,
	 "3-7: those from 3 to 7 that are there. A tagged epoch, the current and the newest complete one are kept (exit 8). A remote is written to as a\n"
	 "mount does it: not while another has it (exit 8).\n",
	 command_rm},
	{"undrop", "[--json] [--tag NAME] [TARGET] EPOCH",
	 "bring a dropped epoch back under its number, until garbage collection has deleted what it needs",
	 of_undrop,
	 "EPOCH is the number that it had. There is time until the grace (-o gc-grace, epochfs gc --grace) has\n"
	 "passed since the first collection after the drop; then exit 5.\n"
	 "Example: epochfs undrop /mnt/ckpt 41\n",
	 command_undrop},
	{"prune", "[--json] [--dry-run] [--gc [--grace TIME]] --keep POLICY [TARGET]",
	 "drop the epochs that a policy lets go, and say why the others stay", of_prune,
	 "The newest complete and durable epoch, tagged ones and the current one always stay. To have a mount do it by\n"
	 "itself, give it -o keep=POLICY.\n"
	 "Example: epochfs prune --dry-run --keep last:10,daily:7,every:1000 s3://bucket/run7\n",
	 command_prune},
	{"export",
	 "[--json] [--force] [--privileged] [--threads N] TARGET[@EPOCH][:PATH] DIRECTORY",
	 "restore an epoch, or a path in it, into an empty or new directory, without FUSE",
	 of_export,
	 "EPOCH is 42, step=500, latest (the default), a tag, or @2h.\n"
	 "Example: epochfs export /backup/run7@step=500:model.pt ./restored\n",
	 command_export},
	{"import",
	 "[--json] [--step N] [--tag NAME] [-m TEXT] [-o OPTION[,...]] DIRECTORY REMOTE\n--remove PATH REMOTE",
	 "commit an ordinary directory as an epoch, without FUSE", of_import,
	 "The volume is made where the remote is empty. One that is killed leaves nothing half visible, and the next one\n"
	 "does not upload again what is there. Exit 1 where the directory keeps changing, 8 where another writes.\n"
	 "Example: epochfs import ./checkpoints s3://bucket/run7 && epochfs export s3://bucket/run7 ./restored\n",
	 command_import},
	{"watch", "[--json] [--grace TIME] [--poll TIME] [-o OPTION[,...]] DIRECTORY REMOTE",
	 "commit each new checkpoint that appears in an ordinary directory, without FUSE", of_watch,
	 "It stays in the foreground and prints a line for each epoch. A checkpoint is whole by the rules of a mount: a marker, a\n"
	 "temporary name that becomes final, or quiet. SIGTERM: a last import of what is settled, then exit 0, or 7 where the grace\n"
	 "was too short. A remote that is away is tried for ever.\n"
	 "Example: epochfs watch -o settle=10s ./checkpoints s3://bucket/run7\n",
	 command_watch},
	{"run",
	 "--mount REMOTE:DIRECTORY [-o OPTION[,...]] [--resume] [--grace TIME] -- COMMAND...\n[--resume] [--grace TIME] [DIRECTORY] -- COMMAND...",
	 "run a training command on a mount, and make what it saved durable before it ends", of_run,
	 "DIRECTORY is mounted already, and stays so; without it, the mount that it is started in counts.\n"
	 "SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP and SIGCONT are passed on to the command's process group.\n"
	 "From the first of them but SIGCONT each close waits for the remote. The exit code is the command's;\n"
	 "CODE when it was interrupted and all is durable; 7 when that did not come in time.\n"
	 "Example: epochfs run --mount s3://bucket/run7:/mnt/ckpt --resume -- python3 train.py\n",
	 command_run},
	{"verify", "[--json] [--deep] [TARGET] [EPOCH]",
	 "read an epoch whole: is each file of it there, right, and not torn inside", of_verify,
	 "EPOCH is 42, step=500, latest (the default), a tag, or @2h. Every byte is read from the remote and checked against\n"
	 "its hash; zip, safetensors, HDF5, NumPy and pickle files by their tails, LevelDB and LMDB by their meta data, too.\n"
	 "A line for each file that is damaged, and exit 6; for databases, which no seal has looked at, only with --deep.\n"
	 "A mount's epoch is made durable first; one without a remote is read as .epochs shows it.\n"
	 "Example: epochfs verify s3://bucket/run7 best\n",
	 command_verify},
	{"cache",
	 "warm [--json] [DIRECTORY] [EPOCH [PATH...]]\nstatus [--json] [DIRECTORY]\nlist [--json] [--cache-dir DIR]\ndrop [--json] [--force] [--cache-dir DIR] VOLUME",
	 "fetch an epoch into the local cache, say what it holds, list and remove caches", of_cache,
	 "  warm [DIRECTORY] [EPOCH [PATH]]   make the epoch's files, or those under these paths, local\n"
	 "  status [DIRECTORY]                bytes that are local, not yet durable, and the limit\n"
	 "  list                              the caches of this machine, mounted or not: volume, size, remote\n"
	 "  drop VOLUME                       remove the cache of a volume, by its UUID or remote, once nothing is there alone\n"
	 "EPOCH is 42, step=500, latest (the default), a tag, or @2h. Exit 6 where files are damaged: the others are fetched,\n"
	 "and each that is not has a line. Exit 1, before anything is fetched, where the cache cannot hold them.\n"
	 "Example: epochfs cache warm /mnt/ckpt step=500 checkpoint-500/model.safetensors\n",
	 command_cache},
	{"fsck",
	 "[--json] [--read-data] REMOTE\n--repair [--json] [--dry-run] [--cache-dir DIR] [TARGET]",
	 "verify a remote and say what is damaged, or repair it", of_fsck, NULL, command_fsck},
	{"gc", "[--json] [--dry-run] [--grace TIME] [--rewrite-below PERCENT] [TARGET]",
	 "remove from the remote what no epoch needs any more", of_gc,
	 "What is condemned now is deleted by a later run, once the grace has passed: run it each day. Safe beside mounts\n"
	 "that write and read, and when it is killed. Exit 6 where something that an epoch needs is damaged: then nothing\n"
	 "is deleted. Exit 8 where another one is at work.\n"
	 "Example: epochfs gc s3://bucket/run7\n",
	 command_gc},
	{"key",
	 "list [--json] [TARGET]\nadd [--json] --new-passphrase-file FILE|--new-key-file FILE [TARGET]\nremove [--json] [TARGET] KEY",
	 "the passphrases and key files that open an encrypted volume", of_key,
	 "  list TARGET             their ids, kinds, and since when\n"
	 "  add TARGET              one more, in --new-passphrase-file FILE or --new-key-file FILE\n"
	 "  remove TARGET KEY       no longer this one; not the one that the volume is opened with (exit 8)\n"
	 "--passphrase-file or --key-file opens it now; also EPOCHFS_PASSPHRASE_FILE, EPOCHFS_KEY_FILE.\n"
	 "A passphrase is the first line of its file, a key file 32 random bytes or more. Removing one changes nothing that is\n"
	 "stored. Exit 4 where what is given does not open the volume.\n"
	 "Example: epochfs key add --key-file ~/run7.key --new-passphrase-file ~/run7.passphrase s3://bucket/run7\n",
	 command_key},
	{"check", "[--json] [--size SIZE] REMOTE",
	 "try a remote: what it can, how fast it is, what epochfs makes of it", of_check,
	 "Writes objects of its own and deletes them again, also where a volume is. Exit 6 where the remote\n"
	 "gives back other bytes than it was given, 1 where something else that a volume needs fails.\n"
	 "Example: epochfs check sftp://backup@store/runs/7\n",
	 command_check},
	{"doctor", "[--json] [--quiet] [TARGET]",
	 "say what is wrong with this machine, or with a mount or a remote, and what to do",
	 of_doctor,
	 "A line is a finding: ok, note or wrong. A remote, also that of a mount, is tried as by epochfs check, with objects of its own\n"
	 "that are deleted again. Exit 1 where something is wrong.\n"
	 "Example: epochfs doctor --quiet /mnt/ckpt\n",
	 command_doctor},
	{"config", "[--json] [TARGET]", "the options that hold, and where each comes from",
	 of_config,
	 "Of a mount those that it has; of a remote those that a mount of it would have: from the command line, the environment,\n"
	 "$HOME/.config/epochfs/config, /etc/epochfs.conf, in this order, or by default.\n"
	 "Example: epochfs config s3://bucket/run7\n",
	 command_config},
	{"debug", "[-o FILE] [TARGET]",
	 "write one file for a bug report: what a mount or a remote, and this machine, say of themselves",
	 of_debug,
	 "It prints the name of the file, a tar. Passwords, keys and tokens are left out; names of files, hosts and users are in it:\n"
	 "look through it before you give it away. A remote is tried as by epochfs doctor.\n"
	 "Example: epochfs debug -o /tmp/report.tar /mnt/ckpt\n",
	 command_debug},
	{"help", "[--json] [COMMAND]", "what there is, or what a command takes", of_help, NULL,
	 command_help_of},
	{"version", "", "print the version", no_options, NULL, command_version},
};
const size_t command_count = sizeof(command_table) / sizeof(command_table[0]);

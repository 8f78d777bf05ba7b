/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs: the command. Finds the subcommand and runs it. */
#include <stdio.h>
#include <string.h>

#include "lib/util/log.h"
#include "tools/argv.h"
#include "tools/cli.h"
#include "tools/mount_table.h"

static const struct command commands[] = {
	{"mount", "[-f] [--take-over] [-o OPTION[,...]] REMOTE DIRECTORY",
	 "mount a volume where training code expects its checkpoint directory",
	 "  -f                stay in the foreground, log to stderr\n"
	 "  -o name=value     an option; several by commas or several -o; also EPOCHFS_NAME=value\n"
	 "  --take-over       take the volume from a mount elsewhere that writes to it\n"
	 "REMOTE is /abs/dir, file:///abs/dir, memory:NAME, none, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,\n"
	 "https://HOST/PATH, http://HOST/PATH, sftp://HOST/DIR, exec:PROGRAM ARGS, or fault+URL.\n"
	 "Example: epochfs mount /backup/run7 /mnt/ckpt\n",
	 command_mount},
	{"umount", "[--no-drain] [--timeout TIME] DIRECTORY",
	 "seal what is pending, upload it, and unmount",
	 "  --no-drain        leave the upload to the next mount\n"
	 "  --timeout TIME    wait at most so long (then exit 7, still mounted)\n",
	 command_umount},
	{"status", "[--json] [--watch] [--usage] TARGET",
	 "what is mounted, pending, uploaded, and what failed",
	 "  --json            one JSON object\n"
	 "  --watch           refresh every second until interrupted\n"
	 "  --usage           also read from the remote what it takes to say what epochs take there\n",
	 command_status},
	{"log", "[--json] [-n COUNT] TARGET", "the epochs, newest first",
	 "  --json            one JSON array\n"
	 "  -n COUNT          only the newest COUNT\n",
	 command_log},
	{"latest", "[--json] [--complete] [--step N] [--path] TARGET",
	 "the number or the path of the newest epoch, for scripts",
	 "  --complete        the newest whole one: no killed writer, nothing torn\n"
	 "  --step N          the newest of this training step\n"
	 "  --path            MOUNT/.epochs/NUMBER, or REMOTE@NUMBER\n"
	 "  --json            its record\n"
	 "Example: train.py --resume-from $(epochfs latest --complete --path /mnt/ckpt)/model.pt\n",
	 command_latest},
	{"show", "[--json] TARGET [EPOCH]", "one epoch: its record and its files",
	 "  --json            the record with its files as one JSON object\n", command_show},
	{"diff", "[--json] TARGET EPOCH [EPOCH]",
	 "paths added, changed and removed between two epochs",
	 "  With one EPOCH: what it changed against the one before it.\n"
	 "  --json            one JSON object\n",
	 command_diff},
	{"commit", "[--json] [--tag NAME] [--step N] [-m TEXT] [--whole] DIRECTORY",
	 "seal an epoch now",
	 "  --tag NAME        name it\n"
	 "  --step N          the training step, over what names say\n"
	 "  -m TEXT           a message kept with it\n"
	 "  --whole           what is in doubt is whole: you know it\n"
	 "  --db-type TYPE, --db-prefix TEXT, --path-type TYPE, --path-prefix TEXT, --node-names NAME[,NAME...]\n"
	 "                    what a metadata writer says of the checkpoint; kept with it, and in the catalog\n",
	 command_commit},
	{"wait", "[--json] [--timeout TIME] DIRECTORY [EPOCH]",
	 "wait until an epoch, or all that is closed now, is durable in the remote",
	 "  --timeout TIME    exit 7 when it takes longer\n", command_wait},
	{"restart", "DIRECTORY",
	 "start the process that serves a supervised mount anew, as after an upgrade",
	 "  The mount stays, and so do open files. It takes -o supervise at the mount.\n"
	 "Example: epochfs restart /mnt/ckpt\n",
	 command_restart},
	{"rollback", "[--json] DIRECTORY EPOCH",
	 "make the live tree equal to an epoch; nothing is lost",
	 "  What is pending is sealed first; the old tree becomes a new epoch.\n",
	 command_rollback},
	{"tag", "[-d] [-f] TARGET [EPOCH] [NAME]",
	 "name an epoch, remove a name, or list the names",
	 "  -d                remove the tag NAME\n"
	 "  -f                move NAME where it is taken\n"
	 "  --json            with TARGET alone: the tags as one JSON object\n",
	 command_tag},
	{"rm", "[--json] TARGET EPOCH...", "drop epochs, here and in the remote",
	 "  A tagged epoch, the current and the newest complete one are kept (exit 8). A remote is written to as a\n"
	 "  mount does it: not while another has it (exit 8).\n",
	 command_rm},
	{"undrop", "[--json] [--tag NAME] TARGET EPOCH",
	 "bring a dropped epoch back under its number, until garbage collection has deleted what it needs",
	 "  --tag NAME        the tag that it gets, so that no policy drops it again (undropped-EPOCH)\n"
	 "  EPOCH is the number that it had. There is time until the grace (-o gc-grace, epochfs gc --grace) has\n"
	 "  passed since the first collection after the drop; then exit 5.\n"
	 "Example: epochfs undrop /mnt/ckpt 41\n",
	 command_undrop},
	{"prune", "[--json] [--dry-run] [--gc [--grace TIME]] --keep POLICY TARGET",
	 "drop the epochs that a policy lets go, and say why the others stay",
	 "  --keep POLICY     rules: last:N, hourly:N, daily:N, weekly:N, monthly:N, yearly:N, every:N (steps),\n"
	 "                    tagged; an epoch stays where one of them wants it\n"
	 "  --gc              then collect the garbage of the remote, as epochfs gc does\n"
	 "  --grace TIME      for how long what is condemned stays (24h)\n"
	 "  -n, --dry-run     only say what would be done\n"
	 "  --json            one JSON object\n"
	 "The newest complete and durable epoch, tagged ones and the current one always stay. To have a mount do it by\n"
	 "itself, give it -o keep=POLICY.\n"
	 "Example: epochfs prune --dry-run --keep last:10,daily:7,every:1000 s3://bucket/run7\n",
	 command_prune},
	{"export", "[--json] [--force] [--privileged] TARGET[@EPOCH][:PATH] DIRECTORY",
	 "restore an epoch, or a path in it, into an empty or new directory, without FUSE",
	 "  EPOCH is 42, step=500, latest (the default), a tag, or @2h.\n"
	 "  --force           into a directory that is not empty; files are replaced, but those that are right\n"
	 "                    already are not fetched: so an export that was killed goes on\n"
	 "  --privileged      as root, also setuid, setgid, device nodes and attributes but user.*; of a remote\n"
	 "                    that you trust as you trust root here\n"
	 "  --threads N       so many files at once\n"
	 "Example: epochfs export /backup/run7@step=500:model.pt ./restored\n",
	 command_export},
	{"import",
	 "[--step N] [--tag NAME] [-m TEXT] [--json] DIRECTORY REMOTE | --remove PATH REMOTE",
	 "commit an ordinary directory as an epoch, without FUSE",
	 "  --step N          the training step, over what names say\n"
	 "  --tag NAME        name the epoch\n"
	 "  -m TEXT           a message kept with it\n"
	 "  --allow-changing  what keeps changing is taken as it was read; the epoch is not complete\n"
	 "  --read-all        also files that have not changed since the last import from here\n"
	 "  --take-over       take the volume from who writes to it\n"
	 "  -o OPTION[,...]   as of a mount: cache-dir, patience, lease, log, step, node, run-id, threads, ...\n"
	 "  --json            one JSON object\n"
	 "  --remove PATH     no directory is read: the newest epoch without this file or directory; exit 5 where it has none\n"
	 "The volume is made where the remote is empty. One that is killed leaves nothing half visible, and the next one\n"
	 "does not upload again what is there. Exit 1 where the directory keeps changing, 8 where another writes.\n"
	 "Example: epochfs import ./checkpoints s3://bucket/run7 && epochfs export s3://bucket/run7 ./restored\n",
	 command_import},
	{"watch", "[--json] [--grace TIME] [-o OPTION[,...]] DIRECTORY REMOTE",
	 "commit each new checkpoint that appears in an ordinary directory, without FUSE",
	 "  -o OPTION[,...]   as of a mount: settle, patience, temporary, marker, log, step, cache-dir, lease, ...\n"
	 "  --grace TIME      from SIGTERM or SIGINT until what is settled must be in the remote (25s)\n"
	 "  --poll TIME       list the directory so often instead of being told of changes\n"
	 "  --take-over       take the volume from who writes to it\n"
	 "  --json            one JSON object a line for each epoch\n"
	 "It stays in the foreground and prints a line for each epoch. A checkpoint is whole by the rules of a mount: a marker, a\n"
	 "temporary name that becomes final, or quiet. SIGTERM: a last import of what is settled, then exit 0, or 7 where the grace\n"
	 "was too short. A remote that is away is tried for ever.\n"
	 "Example: epochfs watch -o settle=10s ./checkpoints s3://bucket/run7\n",
	 command_watch},
	{"run", "--mount REMOTE:DIRECTORY | [DIRECTORY] [--resume] [--grace TIME] -- COMMAND...",
	 "run a training command on a mount, and make what it saved durable before it ends",
	 "  --mount REMOTE:DIRECTORY      mount it there first, unmount after\n"
	 "  DIRECTORY                     is mounted already, and stays so; without it, the mount that it is started in\n"
	 "  -o OPTION[,...]               options of that mount\n"
	 "  --resume                      after a killed or torn save, start from the newest whole epoch: -o resume\n"
	 "  --grace TIME                  from the first signal until all must be durable (25s)\n"
	 "  --checkpoint-exit-code CODE   where it was interrupted and all is durable (85)\n"
	 "SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP and SIGCONT are passed on to the command's process group.\n"
	 "From the first of them but SIGCONT each close waits for the remote. The exit code is the command's;\n"
	 "CODE when it was interrupted and all is durable; 7 when that did not come in time.\n"
	 "Example: epochfs run --mount s3://bucket/run7:/mnt/ckpt --resume -- python3 train.py\n",
	 command_run},
	{"verify", "[--json] [--deep] TARGET [EPOCH]",
	 "read an epoch whole: is each file of it there, right, and not torn inside",
	 "  --json            one JSON object\n"
	 "  --deep            a database that is not whole is damage\n"
	 "EPOCH is 42, step=500, latest (the default), a tag, or @2h. Every byte is read from the remote and checked against\n"
	 "its hash; zip, safetensors and HDF5 files by their tails, LevelDB and LMDB by their meta data, too. A line for each\n"
	 "file that is damaged, and exit 6; for databases, which no seal has looked at, only with --deep.\n"
	 "A mount's epoch is made durable first; one without a remote is read as .epochs shows it.\n"
	 "Example: epochfs verify s3://bucket/run7 best\n",
	 command_verify},
	{"cache", "[--json] warm|status DIRECTORY [EPOCH [PATH...]]",
	 "fetch an epoch into the local cache before it is needed; what the cache holds",
	 "  warm DIRECTORY [EPOCH [PATH...]]  make the epoch's files, or those under these paths, local\n"
	 "  status DIRECTORY                  bytes that are local, not yet durable, and the limit\n"
	 "  --json            one JSON object\n"
	 "EPOCH is 42, step=500, latest (the default), a tag, or @2h. Exit 6 where files are damaged: the others are fetched,\n"
	 "and each that is not has a line. Exit 1, before anything is fetched, where the cache cannot hold them.\n"
	 "Example: epochfs cache warm /mnt/ckpt step=500 checkpoint-500/model.safetensors\n",
	 command_cache},
	{"fsck", "[--json] [--read-data] REMOTE | --repair TARGET",
	 "verify a remote and say what is damaged, or repair it",
	 "  --read-data       read and check every byte, not only what names it\n"
	 "  --repair          read all, restore what the remote has twice or a cache of this machine has,\n"
	 "                    and say what is gone (6); TARGET is a remote, or a mount that writes to it\n"
	 "  --dry-run         with --repair: say what it would do, and write nothing\n"
	 "  --cache-dir=DIR   with --repair of a remote: where the caches of this machine lie\n",
	 command_fsck},
	{"gc", "[--json] [--dry-run] [--grace TIME] TARGET",
	 "remove from the remote what no epoch needs any more",
	 "  --dry-run, -n     only say what would be done\n"
	 "  --grace TIME      what is condemned stays so long before it is deleted (24h)\n"
	 "  --rewrite-below PERCENT   a pack with less of it live is written anew (50)\n"
	 "  --json            one JSON object\n"
	 "What is condemned now is deleted by a later run, once the grace has passed: run it each day. Safe beside mounts\n"
	 "that write and read, and when it is killed. Exit 6 where something that an epoch needs is damaged: then nothing\n"
	 "is deleted. Exit 8 where another one is at work.\n"
	 "Example: epochfs gc s3://bucket/run7\n",
	 command_gc},
	{"key", "[--json] list|add|remove TARGET [KEY]",
	 "the passphrases and key files that open an encrypted volume",
	 "  list TARGET             their ids, kinds, and since when\n"
	 "  add TARGET              one more, in --new-passphrase-file FILE or --new-key-file FILE\n"
	 "  remove TARGET KEY       no longer this one; not the one that the volume is opened with (exit 8)\n"
	 "  --passphrase-file FILE, --key-file FILE   what opens it now; also EPOCHFS_PASSPHRASE_FILE, EPOCHFS_KEY_FILE\n"
	 "  --json                  one JSON array or object\n"
	 "A passphrase is the first line of its file, a key file 32 random bytes or more. Removing one changes nothing that is\n"
	 "stored. Exit 4 where what is given does not open the volume.\n"
	 "Example: epochfs key add --key-file ~/run7.key --new-passphrase-file ~/run7.passphrase s3://bucket/run7\n",
	 command_key},
	{"check", "[--json] [--size SIZE] REMOTE",
	 "try a remote: what it can, how fast it is, what epochfs makes of it",
	 "  --size SIZE       of the objects that measure throughput (8M)\n"
	 "  --json            one JSON object\n"
	 "Writes objects of its own and deletes them again, also where a volume is. Exit 6 where the remote\n"
	 "gives back other bytes than it was given, 1 where something else that a volume needs fails.\n"
	 "Example: epochfs check sftp://backup@store/runs/7\n",
	 command_check},
	{"version", "", "print the version", NULL, command_version},
};

const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

void command_help(const struct command *c)
{
	printf("usage: epochfs %s%s%s\n%s.\n", c->name, *c->arguments ? " " : "", c->arguments,
	       c->summary);
	if (c->help)
		printf("\n%s", c->help);
	if (c->run == command_mount) {
		printf("Options, each explained in epochfs(1):");
		mount_option_help(stdout);
	}
}

static void print_help(FILE *out)
{
	fputs("epochfs makes a training run's checkpoint directory safe: what is closed is committed,\n"
	      "whole checkpoints become epochs that can be browsed, rolled back to and restored.\n\n"
	      "usage: epochfs COMMAND [ARGUMENTS]\n\n",
	      out);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fputs("\n`epochfs COMMAND --help` tells more. A TARGET is a mount point or a remote; every command takes\n"
	      "--passphrase-file FILE or --key-file FILE for one that is encrypted.\n"
	      "Exit codes: 0 done, 1 failed, 2 usage, 3 remote not reached, 4 not allowed by the remote,\n"
	      "5 not found, 6 damaged data, 7 not durable in time, 8 in use or in conflict.\n",
	      out);
}

int command_version(int argc, char **argv)
{
	static const struct cli_option none[] = {{0}};
	int code;

	if (cli_parse("version", argc, argv, none, NULL, 0, &code) < 0)
		return code;
	puts("epochfs " EPOCHFS_VERSION);
	return EXIT_DONE;
}

int main(int argc, char **argv)
{
	const struct command *c;
	const char *name;

	argv = argv_hide_secrets(argc, argv);
	if (!argv)
		return cli_error(EXIT_FAILED, "out of memory");
	name = argc > 1 ? argv[1] : "";
	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		print_help(stdout);
		return EXIT_DONE;
	}
	if (!strcmp(name, "--version"))
		name = "version";
	c = command_find(name);
	if (!c)
		return cli_error(EXIT_USAGE, "unknown command '%s'; see `epochfs --help`", name);
	/* What a command has to say is its one line; only a mount keeps a log. One that may wait for a lease says so. */
	if (c->run != command_mount)
		log_set_level(c->run == command_import || c->run == command_watch
				      ? LOG_LEVEL_WARN
				      : LOG_LEVEL_ERROR);
	return c->run(argc - 1, argv + 1);
}

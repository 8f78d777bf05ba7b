/* SPDX-License-Identifier: Apache-2.0 */
/* The words of the command line, which all users of the machine can read in /proc and in a core file. */
#ifndef EPOCHFS_TOOLS_ARGV_H
#define EPOCHFS_TOOLS_ARGV_H

/*
 * Gives a copy of the words, which is never freed, and hides the secrets of URLs in the original, as
 * remote_url_redact does, so that they show there for no more than a moment. Once, before there are
 * threads or other processes. NULL: no memory, and nothing is hidden.
 */
char **argv_hide_secrets(int argc, char **argv);

#endif

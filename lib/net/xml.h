/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an untrusted XML answer, element by element. Private to lib/net. */
#ifndef EPOCHFS_NET_XML_H
#define EPOCHFS_NET_XML_H

#include <stdbool.h>
#include <stddef.h>

/* Longer or deeper documents, paths or texts of one element are refused. */
#define XML_MAX	     ((size_t)32 << 20)
#define XML_DEPTH    16
#define XML_PATH_MAX 256
#define XML_TEXT_MAX 8192

/*
 * At the end of each element: `path` is its names and those around it, without namespaces' prefixes,
 * as "Error/Code"; `text` what stood in it before any element in it. Anything but 0 ends the walk.
 */
typedef int xml_fn(void *arg, const char *path, const char *text);

/* Walks the document: 0, what fn returned, -EBADMSG where it is no XML or above a bound, has a
 * document type (nothing we read needs one, and bombs do) or a NUL in it, -ENOMEM. */
int xml_each(const void *data, size_t len, xml_fn *fn, void *arg);

/* Is `path` this path, or does it end with it at a `/`? */
bool xml_path_ends(const char *path, const char *end);

#endif

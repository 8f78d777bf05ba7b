/* SPDX-License-Identifier: Apache-2.0 */
/* A list of extended attributes as one byte string, kept in trees and in local state. */
#ifndef EPOCHFS_FORMAT_XATTRS_H
#define EPOCHFS_FORMAT_XATTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 *   list  = attr*               in strictly rising bytewise order of the names
 *   attr  = text value
 *   text  = varint length, the bytes (no NUL in them), a NUL
 *   value = varint length, the bytes
 *
 * No attributes are the empty string. Limits: names 1 to 255 bytes, values 64 KiB (the kernel's),
 * the whole list 1 MiB. Names and values that an iterator gives point into the list.
 */
#define XATTR_NAME_BYTES_MAX  255
#define XATTR_VALUE_BYTES_MAX (64u << 10)
#define XATTRS_BYTES_MAX      (1u << 20)

struct xattrs_iter {
	struct reader r;
};

struct xattrs_iter xattrs_iter_of(const void *list, size_t len);
/* The next attribute; false at the end, or where the list is malformed (call xattrs_check first).
 */
bool xattrs_next(struct xattrs_iter *it, const char **ret_name, const void **ret_value,
		 size_t *ret_len);

/* 0, or -EBADMSG where the bytes break a rule above. */
int xattrs_check(const void *list, size_t len);
/* 0 or -ENODATA. */
int xattrs_get(const void *list, size_t len, const char *name, const void **ret_value,
	       size_t *ret_len);
/* Adds or replaces one: 0, -ENOSPC (list too long), -ERANGE (name), -E2BIG (value), -ENOMEM. */
int xattrs_set(struct buf *list, const char *name, const void *value, size_t len);
/* 0, -ENODATA, or -ENOMEM. */
int xattrs_remove(struct buf *list, const char *name);

#endif

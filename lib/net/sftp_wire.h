/* SPDX-License-Identifier: Apache-2.0 */
/* The packets of SFTP version 3 (draft-ietf-secsh-filexfer-02, and OpenSSH's PROTOCOL for its
 * extensions): pure encoding and decoding. Private to sftp*.c. What is decoded is untrusted. */
#ifndef EPOCHFS_NET_SFTP_WIRE_H
#define EPOCHFS_NET_SFTP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 * packet = u32 length of what follows, u8 type, u32 request id, fields
 * All integers are big-endian; a string is a u32 length and its bytes. INIT and VERSION have the
 * version in the place of the id.
 */
enum sftp_type {
	SFTP_INIT = 1,
	SFTP_VERSION = 2,
	SFTP_OPEN = 3,
	SFTP_CLOSE = 4,
	SFTP_READ = 5,
	SFTP_WRITE = 6,
	SFTP_LSTAT = 7,
	SFTP_FSTAT = 8,
	SFTP_OPENDIR = 11,
	SFTP_READDIR = 12,
	SFTP_REMOVE = 13,
	SFTP_MKDIR = 14,
	SFTP_STAT = 17,
	SFTP_RENAME = 18,
	SFTP_STATUS = 101,
	SFTP_HANDLE = 102,
	SFTP_DATA = 103,
	SFTP_NAME = 104,
	SFTP_ATTRS = 105,
	SFTP_EXTENDED = 200,
	SFTP_EXTENDED_REPLY = 201,
};

enum sftp_status {
	SFTP_OK = 0,
	SFTP_EOF = 1,
	SFTP_NO_SUCH_FILE = 2,
	SFTP_PERMISSION_DENIED = 3,
	SFTP_FAILURE = 4,
	SFTP_BAD_MESSAGE = 5,
	SFTP_OP_UNSUPPORTED = 8,
};

/* pflags of SFTP_OPEN */
#define SFTP_OPEN_READ	0x01
#define SFTP_OPEN_WRITE 0x02
#define SFTP_OPEN_CREAT 0x08
#define SFTP_OPEN_EXCL	0x20

/* The longest packet that is taken; OpenSSH sends no more than 256 KiB. */
#define SFTP_PACKET_MAX (512u << 10)
#define SFTP_HANDLE_MAX 256

void sftp_put_u32(struct buf *b, uint32_t v);
void sftp_put_u64(struct buf *b, uint64_t v);
void sftp_put_string(struct buf *b, const void *data, size_t len);
void sftp_put_text(struct buf *b, const char *text);
/* Attributes that set these permission bits and nothing else. */
void sftp_put_mode(struct buf *b, uint32_t mode);
void sftp_put_no_attrs(struct buf *b);

/* Reads like those of buf.h: what is not there fails the reader. */
uint32_t sftp_u32(struct reader *r);
uint64_t sftp_u64(struct reader *r);
const uint8_t *sftp_string(struct reader *r, size_t *ret_len);

struct sftp_attrs {
	bool has_size, has_mode, has_times;
	uint64_t size;
	uint32_t mode;	/* type and permissions, as of stat(2) */
	uint32_t mtime; /* seconds since 1970 */
};
void sftp_attrs(struct reader *r, struct sftp_attrs *ret_attrs);
/* By has_mode: a regular file, a directory. */
bool sftp_is_file(const struct sftp_attrs *a);
bool sftp_is_dir(const struct sftp_attrs *a);

/* One of the names of an SFTP_NAME, after its count: false at a malformed one. The name is no C
 * string and may hold anything. */
bool sftp_next_name(struct reader *r, const uint8_t **ret_name, size_t *ret_len,
		    struct sftp_attrs *ret_attrs);

/* What the server offers beyond version 3, each in the version that we speak. */
struct sftp_extensions {
	bool posix_rename; /* "posix-rename@openssh.com" "1": replaces the target atomically */
	bool hardlink;	   /* "hardlink@openssh.com" "1": refuses an existing target */
	bool fsync;	   /* "fsync@openssh.com" "1" */
	bool statvfs;	   /* "statvfs@openssh.com" "2" */
	bool limits;	   /* "limits@openssh.com" "1" */
};
/* The pairs of an SFTP_VERSION, after its version: 0 or -EBADMSG. */
int sftp_extensions(struct reader *r, struct sftp_extensions *ret_extensions);

/* Whether a whole packet is at the beginning of these bytes: its bytes with the length in front; 0
 * where more must come; -EBADMSG where none of that length or shape is taken. */
int64_t sftp_packet_len(const uint8_t *data, size_t len);

#endif

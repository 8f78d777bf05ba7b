/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a zip's directory, and what they hold, read in pieces. For lib/format only. */
#ifndef EPOCHFS_FORMAT_ZIP_ENTRY_H
#define EPOCHFS_FORMAT_ZIP_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "lib/format/tails.h"

#define ZIP_SPAN_WINDOW	  (256u << 10)
#define ZIP_SPAN_READ_MAX (32u << 20) /* of one span; what is skipped does not count */

/* Bytes of the source from one place to another. Once `error` is set, all that is read is 0. */
struct zip_span {
	const struct tail_source *in;
	uint64_t at, end; /* what is still to be read into the window */
	size_t pos, len;  /* in the window */
	uint64_t read;	  /* in all */
	int error;	  /* -ENODATA: past the span's end, or enough was read */
	uint8_t window[ZIP_SPAN_WINDOW];
};

void zip_span_open(struct zip_span *s, const struct tail_source *in, uint64_t at, uint64_t size);
uint8_t zip_span_u8(struct zip_span *s);
/* Little-endian, of up to 8 bytes. */
uint64_t zip_span_uint(struct zip_span *s, unsigned width);
/* What lies beyond the window is not read. */
void zip_span_skip(struct zip_span *s, uint64_t len);
/* The next len bytes: as many as `data` has room for, the rest is skipped. */
void zip_span_bytes(struct zip_span *s, uint64_t len, void *data, size_t room);
/* Past the next newline. */
void zip_span_line(struct zip_span *s);

/* An entry of the directory (PKWARE APPNOTE 4.3.12). */
struct zip_entry {
	uint16_t flags, method;
	/* From the ZIP64 field where that has them; UINT32_MAX where it should and does not. */
	uint64_t packed, size, at;
	size_t name_len; /* 0: longer than there is room for */
	uint8_t name[300];
};

/* The next entry of the directory, at which the span is. False where there is none, or an error of the span. */
bool zip_entry_read(struct zip_span *s, struct zip_entry *e);
/* Whether its bytes stand in the archive as they are: neither compressed nor encrypted. */
bool zip_entry_is_plain(const struct zip_entry *e);
/*
 * Where its bytes begin in the source, by its local header, which the span reads: 1. 0 where no header of it lies before the directory, or an error of
 * the span; ZIP_ENTRY_CUT where the header does, but not all of the bytes: Python counts what it writes before it writes it.
 */
#define ZIP_ENTRY_CUT 2
int zip_entry_find(struct zip_span *s, const struct tail_source *in, const struct zip_directory *d,
		   const struct zip_entry *e, uint64_t *ret_at);

static inline bool text_is(const uint8_t *name, size_t len, const char *text)
{
	return len == strlen(text) && memcmp(name, text, len) == 0;
}

static inline bool text_begins(const uint8_t *name, size_t len, const char *text)
{
	return len >= strlen(text) && memcmp(name, text, strlen(text)) == 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Is a zip, safetensors or HDF5 file torn inside? The formats of Python: tails_python.c. */
#include "lib/format/tails.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"

#define TORN 1

static int read_full(const struct tail_source *in, void *data, size_t len, uint64_t offset)
{
	ssize_t got = in->read(in->arg, data, len, offset);

	if (got < 0)
		return (int)got;
	return (size_t)got == len ? 0 : -ENODATA;
}

/* ---- zip ---- */

#define ZIP_END_SIZE	    22u
#define ZIP_COMMENT_MAX	    65535u
#define ZIP64_LOCATOR_SIZE  20u
#define ZIP64_END_SIZE	    56u
#define ZIP_END_MAGIC	    0x06054b50u
#define ZIP64_LOCATOR_MAGIC 0x07064b50u
#define ZIP64_END_MAGIC	    0x06064b50u
#define ZIP_ENTRY_MAGIC	    0x02014b50u

/* Where the directory lies, by the record at the end of the archive. Offsets count from the
 * archive's begin, which need not be the file's. */
struct zip_end {
	uint64_t at; /* of the record, or of the ZIP64 one: the directory ends here */
	uint64_t directory_size, directory_offset, entries;
	bool zip64;
};

/* Finds the record at the end whose comment ends with the file: false where there is none. */
static bool zip_find_end(const uint8_t *tail, size_t len, size_t *ret_at)
{
	for (size_t back = ZIP_END_SIZE; back <= len; back++) {
		struct reader r = reader_of(tail + len - back, back);

		if (reader_u32(&r) != ZIP_END_MAGIC)
			continue;
		reader_skip(&r, 16);
		if (reader_u16(&r) == back - ZIP_END_SIZE) {
			*ret_at = len - back;
			return true;
		}
	}
	return false;
}

/* Puts the ZIP64 record over `end`, where a locator stands before it. 0, TORN or -errno. */
static int zip64_read(const struct tail_source *in, struct zip_end *end)
{
	uint8_t data[ZIP64_END_SIZE];
	struct reader r;
	uint64_t at;
	int error;

	if (end->at < ZIP64_LOCATOR_SIZE + ZIP64_END_SIZE)
		return TORN;
	error = read_full(in, data, ZIP64_LOCATOR_SIZE, end->at - ZIP64_LOCATOR_SIZE);
	if (error)
		return error;
	r = reader_of(data, ZIP64_LOCATOR_SIZE);
	if (reader_u32(&r) != ZIP64_LOCATOR_MAGIC)
		return TORN;
	/* The offset in the locator is useless where something stands before the archive; the record
	 * that all writers make lies right before the locator. */
	at = end->at - ZIP64_LOCATOR_SIZE - ZIP64_END_SIZE;
	error = read_full(in, data, ZIP64_END_SIZE, at);
	if (error)
		return error;
	r = reader_of(data, ZIP64_END_SIZE);
	if (reader_u32(&r) != ZIP64_END_MAGIC)
		return TORN;
	reader_skip(&r, 28);
	end->at = at;
	end->zip64 = true;
	end->entries = reader_u64(&r);
	end->directory_size = reader_u64(&r);
	end->directory_offset = reader_u64(&r);
	return 0;
}

static int zip_has_entry_at(const struct tail_source *in, uint64_t at)
{
	uint8_t magic[4];
	struct reader r;
	int error = read_full(in, magic, sizeof(magic), at);

	if (error)
		return error;
	r = reader_of(magic, sizeof(magic));
	return reader_u32(&r) == ZIP_ENTRY_MAGIC ? 0 : TORN;
}

/* Where the directory begins. */
static int zip_find_directory(const struct tail_source *in, const struct zip_end *end,
			      struct zip_directory *ret)
{
	int error;

	if (end->directory_size > end->at || end->directory_offset > end->at - end->directory_size)
		return TORN;
	ret->size = end->directory_size;
	ret->entries = end->entries;
	ret->zip64 = end->zip64;
	ret->at = end->at - end->directory_size;
	ret->base = ret->at - end->directory_offset;
	if (!end->entries)
		return 0;
	error = zip_has_entry_at(in, ret->at);
	if (error != TORN)
		return error;
	/* Something (a signature) may stand between the directory and the record. */
	ret->at = end->directory_offset;
	ret->base = 0;
	return zip_has_entry_at(in, ret->at);
}

/* Reads the record at the end. 0, TORN or -errno. */
static int zip_read_end(const struct tail_source *in, uint64_t size, struct zip_end *end)
{
	size_t len = size < ZIP_END_SIZE + ZIP_COMMENT_MAX ? (size_t)size
							   : ZIP_END_SIZE + ZIP_COMMENT_MAX;
	cleanup_free uint8_t *tail = malloc(len);
	struct reader r;
	size_t at;
	int error;

	if (!tail)
		return -ENOMEM;
	error = read_full(in, tail, len, size - len);
	if (error)
		return error;
	if (!zip_find_end(tail, len, &at))
		return TORN;
	end->at = size - len + at;
	r = reader_of(tail + at, len - at);
	reader_skip(&r, 10);
	end->entries = reader_u16(&r);
	end->directory_size = reader_u32(&r);
	end->directory_offset = reader_u32(&r);
	if (end->entries == UINT16_MAX || end->directory_size == UINT32_MAX ||
	    end->directory_offset == UINT32_MAX) {
		error = zip64_read(in, end);
		/* Exactly 65535 entries, say, need no ZIP64 record. */
		if (error && !(error == TORN && end->directory_size != UINT32_MAX &&
			       end->directory_offset != UINT32_MAX))
			return error;
	} else if (end->at >= ZIP64_LOCATOR_SIZE) {
		/* PyTorch always writes the ZIP64 records; then the directory ends before them. */
		error = zip64_read(in, end);
		if (error < 0)
			return error;
	}
	return 0;
}

static int zip_check(const struct tail_source *in, uint64_t size, bool named_keras,
		     const char **ret_why)
{
	struct zip_directory directory;
	struct zip_end end = {0};
	int result;

	*ret_why = "the zip directory at its end is missing or cut off";
	result = zip_read_end(in, size, &end);
	if (!result)
		result = zip_find_directory(in, &end, &directory);
	if (!result)
		result = torch_zip_check(in, &directory, ret_why);
	return result ? result : zip_members_check(in, &directory, named_keras, ret_why);
}

/* ---- safetensors ---- */

#define SAFETENSORS_HEADER_MAX (100u << 20) /* the format's own limit */
#define SAFETENSORS_LOOK_MAX   (32u << 20)  /* larger headers are not looked at */

static const char *skip_space(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

/* Reads "[begin, end]" after a key: false where something else is there. */
static bool parse_offsets(const char *p, uint64_t *ret_end)
{
	char *after;

	p = skip_space(p);
	if (*p++ != ':')
		return false;
	p = skip_space(p);
	if (*p++ != '[')
		return false;
	strtoull(p, &after, 10);
	p = skip_space(after);
	if (*p++ != ',')
		return false;
	p = skip_space(p);
	errno = 0;
	*ret_end = strtoull(p, &after, 10);
	return after != p && !errno && *skip_space(after) == ']';
}

/* The bytes of data that a header tells of, and whether it tells of any; false where it is none. */
static bool safetensors_data(const char *header, size_t len, uint64_t *ret_len, bool *ret_any)
{
	static const char key[] = "\"data_offsets\"";

	*ret_len = 0;
	*ret_any = false;
	if (header[0] != '{' || strlen(header) != len)
		return false;
	/* A quote inside a name is escaped, so this cannot be part of one. */
	for (const char *p = strstr(header, key); p; p = strstr(p, key)) {
		uint64_t end = 0;

		p += sizeof(key) - 1;
		if (!parse_offsets(p, &end))
			return false;
		if (end > *ret_len)
			*ret_len = end;
		*ret_any = true;
	}
	return true;
}

/* A length, and text that begins as JSON does and is shorter: whatever the format is, it is cut off. */
static int json_is_cut(const struct tail_source *in, uint64_t size)
{
	static const char begins[] = "{\"";
	char text[sizeof(begins) - 1] = "";
	int error = size < 8 + sizeof(text) ? -ENODATA : read_full(in, text, sizeof(text), 8);

	if (error)
		return error == -ENODATA ? 0 : error;
	return memcmp(text, begins, sizeof(text)) == 0 ? TORN : 0;
}

/* `named`: the name says what it is; else a whole header does, or one that is cut off. */
static int safetensors_check(const struct tail_source *in, uint64_t size, bool named)
{
	int no_header = named ? TORN : 0;
	cleanup_free char *header = NULL;
	uint64_t header_len, data_len;
	uint8_t head[8];
	struct reader r;
	bool any;
	int error;

	if (size < sizeof(head))
		return no_header;
	error = read_full(in, head, sizeof(head), 0);
	if (error)
		return error;
	r = reader_of(head, sizeof(head));
	header_len = reader_u64(&r);
	if (header_len > SAFETENSORS_HEADER_MAX)
		return no_header;
	if (header_len > size - sizeof(head))
		return named ? TORN : json_is_cut(in, size);
	if (header_len > SAFETENSORS_LOOK_MAX)
		return 0;
	header = malloc((size_t)header_len + 1);
	if (!header)
		return -ENOMEM;
	error = read_full(in, header, (size_t)header_len, sizeof(head));
	if (error)
		return error;
	header[header_len] = '\0';
	if (!safetensors_data(header, (size_t)header_len, &data_len, &any) || (!named && !any))
		return no_header;
	return size - sizeof(head) - header_len < data_len ? TORN : 0;
}

/* ---- HDF5 ---- */

static uint64_t read_width(struct reader *r, unsigned width)
{
	return width == 8 ? reader_u64(r) : width == 4 ? reader_u32(r) : reader_u16(r);
}

/* `data` is the superblock; format specification III.A. */
static int hdf5_check_superblock(const uint8_t *data, size_t len, uint64_t size)
{
	struct reader r = reader_of(data, len);
	unsigned version, width, flags = 0;
	uint64_t base, end;

	reader_skip(&r, sizeof(HDF5_MAGIC) - 1);
	version = reader_u8(&r);
	if (version > 3)
		return 0;
	if (version < 2) {
		reader_skip(&r, 4);
		width = reader_u8(&r);
		reader_skip(&r, version == 0 ? 10 : 14);
	} else {
		width = reader_u8(&r);
		reader_skip(&r, 1);
		flags = reader_u8(&r);
	}
	if (width != 2 && width != 4 && width != 8)
		return reader_error(&r) ? TORN : 0;
	base = read_width(&r, width);
	read_width(&r, width);
	end = read_width(&r, width);
	if (reader_error(&r))
		return TORN;
	/* Flag 0: open for writing. 4 is single-writer-multiple-readers, where a reader sees a sound
	 * file at any time. */
	if ((flags & 1) && !(flags & 4))
		return TORN;
	return base > size || end > size - base ? TORN : 0;
}

int hdf5_check(const struct tail_source *in, uint64_t size)
{
	uint8_t data[96] = {0};
	ssize_t got = in->read(in->arg, data, sizeof(data), 0);

	if (got < 0)
		return (int)got;
	return hdf5_check_superblock(data, (size_t)got, size);
}

/* ---- which of them ---- */

static bool name_ends_with(const char *name, const char *ending)
{
	size_t len = strlen(name), ending_len = strlen(ending);

	return len >= ending_len && strcasecmp(name + len - ending_len, ending) == 0;
}

/*
 * Whether no whole file of that name is empty. Of .ckpt and .bin, which are anything, that is a guess: who saves nothing under such a name
 * says so once (`epochfs commit --whole`); an empty last.ckpt that counts as whole costs the one before. Not .distcp: a shard may hold nothing.
 */
static bool is_never_empty(const char *name)
{
	static const char *const endings[] = {".pt",	  ".pth",     ".safetensors", ".npz",
					      ".npy",	  ".keras",   ".h5",	      ".hdf5",
					      ".pkl",	  ".pickle",  ".ckpt",	      ".bin",
					      ".pth.tar", ".msgpack", ".joblib",      NULL};

	for (const char *const *e = endings; *e; e++)
		if (strlen(name) > strlen(*e) && name_ends_with(name, *e))
			return true;
	return false;
}

static bool is_named_pickle(const char *name)
{
	return name_ends_with(name, ".pkl") || name_ends_with(name, ".pickle");
}

static bool is_named_safetensors(const char *name)
{
	return name_ends_with(name, ".safetensors");
}

static bool is_named_keras(const char *name)
{
	return name_ends_with(name, ".keras");
}

bool tail_depends_on_name(const char *name)
{
	return is_named_safetensors(name) || is_named_pickle(name) || is_named_keras(name);
}

int tail_check_source(const struct tail_source *in, uint64_t size, const char *name,
		      const char **ret_why)
{
	static const uint8_t zip_head[4] = {'P', 'K', 3, 4};
	bool named = is_named_safetensors(name);
	uint8_t head[9] = {0};
	ssize_t got;
	int result = 0;
	const char *why = NULL;

	if (!size) {
		*ret_why = is_never_empty(name) ? "it is empty" : *ret_why;
		return is_never_empty(name) ? TORN : 0;
	}
	got = in->read(in->arg, head, sizeof(head), 0);
	if (got < 0)
		return (int)got;
	if (memcmp(head, zip_head, sizeof(zip_head)) == 0) {
		result = zip_check(in, size, is_named_keras(name), &why);
	} else if (memcmp(head, HDF5_MAGIC, sizeof(HDF5_MAGIC) - 1) == 0) {
		result = hdf5_check(in, size);
		why = "HDF5 says that it was not closed, or is longer";
	} else if (memcmp(head, NPY_MAGIC, sizeof(NPY_MAGIC) - 1) == 0) {
		result = npy_check(in, size);
		why = "it is shorter than its NumPy header says";
	} else if (is_named_pickle(name)) {
		result = pickle_check(in, size);
		why = "the end of the pickle is missing";
	} else if (named || head[8] == '{') {
		result = safetensors_check(in, size, named);
		why = "it is shorter than its safetensors header says";
	}
	if (result == TORN)
		*ret_why = why;
	return result;
}

static ssize_t read_descriptor(void *arg, void *data, size_t len, uint64_t offset)
{
	const int *fd = arg;

	return io_pread_some(*fd, data, len, offset);
}

int tail_check(int fd, uint64_t size, const char *name, const char **ret_why)
{
	const struct tail_source in = {.read = read_descriptor, .arg = &fd};

	return tail_check_source(&in, size, name, ret_why);
}
